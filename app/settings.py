"""What the user chose: frozen values, each with its range. Files are app/settings_file.py's.

A ``None`` means "let the program decide"; such a setting is absent from the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from app.errors import SettingsError
from engine.config import BLOCK_SIZES, KVCodec, SamplingParams

_KIB, _GIB = 1 << 10, 1 << 30


@dataclass(frozen=True, slots=True)
class Range:
    """A number from low to high; whole where both are whole."""

    low: float
    high: float
    optional: bool = False

    def accepts(self, value: Any) -> bool:
        """Tell whether a value may be set."""
        if value is None:
            return self.optional
        kinds = int if isinstance(self.low, int) else (int, float)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        return is_number and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few values."""

    values: tuple[Any, ...]
    optional: bool = False

    def accepts(self, value: Any) -> bool:
        """Tell whether a value may be set."""
        if value is None:
            return self.optional
        return not isinstance(value, bool) and value in self.values

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.values))


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def accepts(self, value: Any) -> bool:
        """Tell whether a value may be set."""
        return isinstance(value, bool)

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True, slots=True)
class Text:
    """A text of limited length. is_secret: it may hold a password, so no log may show it."""

    max_length: int = 4096
    is_secret: bool = False

    def accepts(self, value: Any) -> bool:
        """Tell whether a value may be set."""
        return isinstance(value, str) and len(value) <= self.max_length

    def __str__(self) -> str:
        return f"a text of at most {self.max_length} characters"


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of texts."""

    max_items: int = 64

    def accepts(self, value: Any) -> bool:
        """Tell whether a value may be set."""
        return (
            isinstance(value, tuple)
            and len(value) <= self.max_items
            and all(isinstance(item, str) for item in value)
        )

    def __str__(self) -> str:
        return f"a list of at most {self.max_items} texts"


Rule = Range | Choice | Flag | Text | Texts


@dataclass(frozen=True, slots=True)
class _Nested:
    """A table of its own in the file, checked by the rules of its fields."""

    def accepts(self, value: Any) -> bool:
        """Tell whether a value may be set."""
        return isinstance(value, SamplingParams) and all(
            rule.accepts(getattr(value, name)) for name, rule in SAMPLING_RULES.items()
        )

    def __str__(self) -> str:
        return "sampling values within their ranges"


SAMPLING_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "temperature": Range(0.0, 5.0),
        "top_k": Range(0, 1_000_000),
        "top_p": Range(0.0, 1.0),
        "min_p": Range(0.0, 1.0),
        "repetition_penalty": Range(0.5, 3.0),
        "presence_penalty": Range(-2.0, 2.0),
        "frequency_penalty": Range(-2.0, 2.0),
        "penalty_last_n": Range(0, 1_000_000),
        "seed": Range(0, 2**63 - 1, optional=True),
    }
)


def _setting(default: Any, rule: Rule | _Nested, *, reload: bool = False) -> Any:
    return field(default=default, metadata={"rule": rule, "reload": reload})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. Sizes in bytes, times in the unit the name ends with.

    language: "system" follows the desktop. last_model: path, "" before the first.
    """

    # The window
    language: str = _setting("system", Choice(("system", "en", "zh_CN")))
    theme: str = _setting("system", Choice(("system", "light", "dark")))
    zoom: float = _setting(1.0, Range(0.5, 3.0))
    enter_sends: bool = _setting(True, Flag())
    notify_when_done: bool = _setting(True, Flag())

    # Models and replies
    model_folders: tuple[str, ...] = _setting((), Texts())
    last_model: str = _setting("", Text())
    system_prompt: str = _setting("", Text(100_000))
    sampling: SamplingParams = field(
        default_factory=SamplingParams, metadata={"rule": _Nested(), "reload": False}
    )
    max_tokens: int | None = _setting(None, Range(1, 1_000_000, optional=True))

    # Memory: what the panel offers
    keep_conversations_ready: bool = _setting(True, Flag())
    context_length: int | None = _setting(None, Range(256, 1 << 20, optional=True), reload=True)
    kv_codec: str = _setting("f16", Choice(tuple(str(codec) for codec in KVCodec)), reload=True)
    force_kv_codec: bool = _setting(False, Flag(), reload=True)
    block_size: int | None = _setting(None, Choice(BLOCK_SIZES, optional=True), reload=True)
    hot_budget_bytes: int | None = _setting(
        None, Range(64 * _KIB, 1024 * _GIB, optional=True), reload=True
    )
    warm_budget_bytes: int | None = _setting(
        None, Range(0, 1024 * _GIB, optional=True), reload=True
    )
    cold_budget_bytes: int | None = _setting(None, Range(0, 16_384 * _GIB, optional=True))
    parallel_sequences: int = _setting(4, Range(1, 64))
    session_timeout_minutes: int = _setting(30, Range(1, 10_080))
    eviction_order: str = _setting("balanced", Choice(("balanced", "recency", "frequency")))
    prefetch: bool = _setting(True, Flag())
    overflow: str = _setting("ask", Choice(("ask", "drop_oldest", "keep_ends", "rolling_window")))
    clone_decay: float = _setting(0.8, Range(0.05, 1.0))
    store_folder: str = _setting("", Text(), reload=True)
    shared_store_url: str = _setting("", Text(is_secret=True))

    # The machine
    num_threads: int | None = _setting(None, Range(1, 512, optional=True), reload=True)
    device: str = _setting("auto", Text(32), reload=True)
    offload_share: float | None = _setting(0.0, Range(0.0, 1.0, optional=True), reload=True)
    compute: str = _setting("auto", Choice(("auto", "float32", "bfloat16")), reload=True)
    kernels: bool = _setting(True, Flag(), reload=True)
    prefill_chunk: int = _setting(128, Range(16, 4096), reload=True)


def rule_of(name: str) -> Rule | _Nested:
    """Return the range of a setting. Raises: KeyError."""
    rule: Rule | _Nested = _metadata(name)["rule"]
    return rule


def needs_reload(name: str) -> bool:
    """Tell whether a setting takes effect only when the model is loaded again."""
    return bool(_metadata(name)["reload"])


def check(settings: Settings) -> None:
    """Raise SettingsError for the first setting that is out of its range."""
    for item in fields(settings):
        rule = rule_of(item.name)
        if not rule.accepts(getattr(settings, item.name)):
            raise SettingsError(item.name, f"{item.name} must be {rule}.")


def _metadata(name: str) -> Mapping[str, Any]:
    return {item.name: item.metadata for item in fields(Settings)}[name]
