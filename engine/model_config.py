"""What a model is made of, in Hugging Face's words: the only place that knows metadata keys.

Every number is bounded before it is believed, so that a flipped byte ends in a typed error and not
in an allocation. Needs no torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf_file import GGUFFile
from engine.memory.interface import AttentionGroup, MemorySpec, RecurrentState

FULL, SLIDING, RECURRENT = "full_attention", "sliding_attention", "recurrent"

# Layer i is local unless (i + 1) is a multiple of this; files may name their own.
_SLIDING_PATTERNS = {"gemma3": 6, "gemma2": 2, "gpt-oss": 2, "olmo2": 4}
_EPS_KEYS = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")
_MAX_LAYERS, _MAX_SIZE, _MAX_VOCAB = 1024, 1 << 20, 1 << 22


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding of some layers.

    dim: leading numbers of a head that turn. scaling: "linear" or "yarn", by factor. magnitude:
    multiplies cosine and sine. beta_fast, beta_slow: turns within the original context between
    which YaRN fades.
    """

    dim: int
    theta: float
    scaling: str = "linear"
    factor: float = 1.0
    original_context_length: int = 0
    magnitude: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0


@dataclass(frozen=True, slots=True)
class ExpertConfig:
    """Mixture of experts: how many there are, how many a token uses, and their width."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int


@dataclass(frozen=True, slots=True)
class StateConfig:
    """Recurrent layers: taps of the convolution, channels, state per channel, rank of dt."""

    conv_kernel: int
    inner_size: int
    state_size: int = 0
    time_step_rank: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model, read from its file.

    layer_types: FULL, SLIDING or RECURRENT per layer. attention_scale: multiplies q.k.
    rope_local: of sliding layers, None where they share ``rope``. temperature_scale: growth of q
    beyond the original context (Mistral 3). Softcaps and logit_scale are None where unused.
    """

    architecture: str
    name: str
    vocab_size: int
    context_length: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    norm_eps: float
    attention_scale: float
    layer_types: tuple[str, ...]
    rope: RopeConfig
    rope_local: RopeConfig | None = None
    sliding_window: int | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float | None = None
    temperature_scale: float = 0.0
    is_parallel_residual: bool = False
    has_rope: bool = True
    experts: ExpertConfig | None = None
    state: StateConfig | None = None

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> ModelConfig:
        """Read a configuration.

        Raises: ModelFileError naming the key that is missing, of another type or out of bounds.
        """
        return _read(_Keys(file))

    def memory_spec(self, fingerprint: bytes) -> MemorySpec:
        """Return what must be remembered per token and per sequence."""
        groups = [
            self._group(kind, window)
            for kind, window in ((FULL, None), (SLIDING, self.sliding_window))
            if kind in self.layer_types
        ]
        return MemorySpec(fingerprint, tuple(groups), self._recurrent())

    def layers_of(self, kind: str) -> tuple[int, ...]:
        """Return the indices of the layers of one kind."""
        return tuple(i for i, found in enumerate(self.layer_types) if found == kind)

    def _group(self, kind: str, window: int | None) -> AttentionGroup:
        return AttentionGroup(self.layers_of(kind), self.num_key_value_heads, self.head_dim, window)

    def _recurrent(self) -> RecurrentState | None:
        layers, state = self.layers_of(RECURRENT), self.state
        if state is None or not layers:
            return None
        shapes = [("conv", (state.inner_size, state.conv_kernel - 1))]
        if state.state_size:
            shapes.append(("ssm", (state.inner_size, state.state_size)))
        return RecurrentState(layers, tuple(shapes))


class _Keys:
    """Metadata of the file's architecture; every reader checks type and bounds."""

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        self.architecture = file.require("general.architecture", str)

    def has(self, name: str) -> bool:
        return self.key(name) in self.file.metadata

    def key(self, name: str) -> str:
        return name if name.startswith("general.") else f"{self.architecture}.{name}"

    def count(
        self, name: str, default: int | None = None, *, low: int = 1, high: int = _MAX_SIZE
    ) -> int:
        if default is not None and not self.has(name):
            return default
        value = self.file.require(self.key(name), int)
        if not low <= value <= high:
            raise self.fault(name, f"{value} is not within {low}..{high}")
        return value

    def number(
        self, name: str, default: float | None = None, *, low: float = 0.0, high: float = 1e9
    ) -> float:
        if default is not None and not self.has(name):
            return default
        value = self.file.require(self.key(name), float)
        if not low <= value <= high:
            raise self.fault(name, f"{value} is not within {low}..{high}")
        return value

    def optional_number(self, name: str) -> float | None:
        return self.number(name) if self.has(name) else None

    def flag(self, name: str, default: bool) -> bool:
        return self.file.require(self.key(name), bool) if self.has(name) else default

    def text(self, name: str, default: str) -> str:
        return self.file.require(self.key(name), str) if self.has(name) else default

    def per_layer(self, name: str, num_layers: int, default: int) -> tuple[int, ...]:
        """Read a count that may be one number or a list with one per layer; zeros allowed."""
        value = self.file.get(self.key(name), default)
        if not isinstance(value, list):
            return (self.count(name, default, low=0),) * num_layers
        counts = tuple(item for item in value if isinstance(item, int) and 0 <= item <= _MAX_SIZE)
        if len(counts) != num_layers or len(value) != num_layers:
            raise self.fault(name, f"{len(value)} values for {num_layers} layers")
        return counts

    def fault(self, name: str, reason: str) -> ModelFileError:
        message = "A setting in the model file makes no sense."
        return ModelFileError(message, detail=f"{self.key(name)}: {reason}")


def _read(keys: _Keys) -> ModelConfig:
    num_layers = keys.count("block_count", high=_MAX_LAYERS)
    hidden_size = keys.count("embedding_length")
    heads, kv_heads, kv_per_layer = _heads(keys, num_layers)
    head_dim = _head_dim(keys, hidden_size, heads)
    layer_types = _layer_types(keys, kv_per_layer)
    rope = _rope(keys, head_dim)
    return ModelConfig(
        architecture=keys.architecture,
        name=keys.text("general.name", keys.file.paths[0].stem),
        vocab_size=_vocab_size(keys),
        context_length=keys.count("context_length", high=1 << 28),
        hidden_size=hidden_size,
        intermediate_size=_intermediate_size(keys, num_layers),
        num_hidden_layers=num_layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=_norm_eps(keys),
        attention_scale=_attention_scale(keys, num_layers, hidden_size, heads, head_dim),
        layer_types=layer_types,
        rope=rope,
        rope_local=_rope_local(keys, head_dim),
        sliding_window=keys.count("attention.sliding_window", high=1 << 28)
        if SLIDING in layer_types
        else None,
        attn_logit_softcapping=_softcap(keys, "attn_logit_softcapping", 50.0),
        final_logit_softcapping=_softcap(keys, "final_logit_softcapping", 30.0),
        embedding_scale=_embedding_scale(keys, hidden_size),
        residual_scale=keys.number("residual_scale", 1.0),
        logit_scale=keys.optional_number("logit_scale"),
        temperature_scale=keys.number("attention.temperature_scale", 0.0),
        is_parallel_residual=keys.flag("use_parallel_residual", False),
        has_rope=rope.dim > 0
        and (keys.flag("rope.scaling.finetuned", True) or keys.architecture != "granite"),
        experts=_experts(keys),
        state=_state(keys, hidden_size, is_needed=RECURRENT in layer_types),
    )


def _heads(keys: _Keys, num_layers: int) -> tuple[int, int, tuple[int, ...]]:
    """Return query heads, kv heads, and the kv heads of every layer (0 for no attention)."""
    heads = keys.count("attention.head_count", low=0, high=4096)
    per_layer = keys.per_layer("attention.head_count_kv", num_layers, heads)
    kinds = set(per_layer) - {0}
    if len(kinds) > 1:
        message = "Models whose layers differ in their number of key/value heads are unsupported."
        raise UnsupportedModelError(message, detail=keys.key("attention.head_count_kv"))
    kv_heads = kinds.pop() if kinds else 0
    if kv_heads and heads % kv_heads:
        raise keys.fault("attention.head_count_kv", f"{heads} heads over {kv_heads}")
    return heads, kv_heads, per_layer


def _head_dim(keys: _Keys, hidden_size: int, heads: int) -> int:
    default = hidden_size // heads if heads else 0
    if heads > hidden_size and not keys.has("attention.key_length"):
        raise keys.fault("attention.head_count", f"{heads} heads in {hidden_size} channels")
    head_dim = keys.count("attention.key_length", default, high=4096)
    if keys.count("attention.value_length", head_dim, high=4096) != head_dim:
        message = "Models with keys and values of different size are not supported."
        raise UnsupportedModelError(message, detail=keys.key("attention.value_length"))
    return head_dim


def _layer_types(keys: _Keys, kv_per_layer: tuple[int, ...]) -> tuple[str, ...]:
    is_local = _sliding_layers(keys, len(kv_per_layer))
    return tuple(
        RECURRENT if kv_heads == 0 else SLIDING if local else FULL
        for kv_heads, local in zip(kv_per_layer, is_local, strict=True)
    )


def _sliding_layers(keys: _Keys, num_layers: int) -> tuple[bool, ...]:
    pattern = _SLIDING_PATTERNS.get(keys.architecture)
    window = keys.count("attention.sliding_window", 0, low=0, high=1 << 28)
    if pattern is None or window == 0:
        return (False,) * num_layers
    name = "attention.sliding_window_pattern"
    stored = keys.file.get(keys.key(name), pattern)
    if isinstance(stored, list):
        if len(stored) != num_layers:
            raise keys.fault(name, f"{len(stored)} values for {num_layers} layers")
        return tuple(bool(value) for value in stored)
    period = keys.count(name, pattern, high=_MAX_LAYERS)
    return tuple(layer % period < period - 1 for layer in range(num_layers))


def _vocab_size(keys: _Keys) -> int:
    """Take the rows of the embedding: a key for it is optional, and may disagree."""
    info = keys.file.tensors.get("token_embd.weight")
    if info is None or len(info.shape) != 2 or not 1 <= info.shape[0] <= _MAX_VOCAB:
        message = "A part of the model is missing in the file."
        raise ModelFileError(message, detail="token_embd.weight")
    return info.shape[0]


def _intermediate_size(keys: _Keys, num_layers: int) -> int:
    sizes = set(keys.per_layer("feed_forward_length", num_layers, 0))
    if len(sizes) > 1:
        message = "Models whose feed-forward layers differ in width are not supported."
        raise UnsupportedModelError(message, detail=keys.key("feed_forward_length"))
    return sizes.pop()


def _norm_eps(keys: _Keys) -> float:
    for name in _EPS_KEYS:
        if keys.has(name):
            return keys.number(name, high=1.0)
    return keys.number(_EPS_KEYS[0])


def _attention_scale(
    keys: _Keys, num_layers: int, hidden_size: int, heads: int, head_dim: int
) -> float:
    if not heads:
        return 1.0
    scale = keys.optional_number("attention.scale")
    if scale:
        return scale
    # The 27B models of these families were trained with this odd scale; no key says so.
    if (keys.architecture, num_layers) in (("gemma2", 46), ("gemma3", 62)):
        return 1 / math.sqrt(hidden_size / heads)
    return 1 / math.sqrt(head_dim)


def _rope(keys: _Keys, head_dim: int) -> RopeConfig:
    scaling = keys.text("rope.scaling.type", "linear")
    if scaling not in ("none", "linear", "yarn", "longrope"):
        message = f"Position scaling of type {scaling!r} is not supported."
        raise UnsupportedModelError(message, detail=keys.key("rope.scaling.type"))
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0)) or 1.0
    has_betas = keys.architecture == "mistral3"
    return RopeConfig(
        dim=_rope_dim(keys, head_dim),
        theta=keys.number("rope.freq_base", 10000.0, low=2.0, high=1e12),
        scaling=scaling,
        factor=factor if scaling in ("linear", "yarn") else 1.0,
        original_context_length=_original_context(keys),
        magnitude=_magnitude(keys, scaling, factor),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0) if has_betas else 32.0,
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0) if has_betas else 1.0,
    )


def _rope_dim(keys: _Keys, head_dim: int) -> int:
    dim = keys.count("rope.dimension_count", head_dim, low=0, high=4096)
    if dim > head_dim or dim % 2:
        raise keys.fault("rope.dimension_count", f"{dim} of {head_dim}")
    return dim


def _original_context(keys: _Keys) -> int:
    trained = keys.count("context_length", high=1 << 28)
    return keys.count("rope.scaling.original_context_length", trained, high=1 << 28)


def _magnitude(keys: _Keys, scaling: str, factor: float) -> float:
    magnitude = keys.number("rope.scaling.attn_factor", 1.0)
    if scaling != "yarn" or factor <= 1.0:
        return magnitude
    magnitude *= 1 + 0.1 * math.log(factor)
    if keys.architecture == "mistral3":
        multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0.0)
        magnitude /= 1 + 0.1 * multiplier * math.log(factor)
    return magnitude


def _rope_local(keys: _Keys, head_dim: int) -> RopeConfig | None:
    """Rotary embedding of sliding layers, where it is not that of the others."""
    if keys.architecture not in ("gemma3", "olmo2"):
        return None
    default = 10000.0 if keys.architecture == "gemma3" else _rope(keys, head_dim).theta
    theta = keys.number("rope.freq_base_swa", default, low=1.0, high=1e12)
    return RopeConfig(dim=_rope_dim(keys, head_dim), theta=theta)


def _softcap(keys: _Keys, name: str, gemma2_default: float) -> float | None:
    default = gemma2_default if keys.architecture == "gemma2" else 0.0
    return keys.number(name, default) or None


def _embedding_scale(keys: _Keys, hidden_size: int) -> float:
    if keys.architecture.startswith("gemma"):
        return math.sqrt(hidden_size)
    return keys.number("embedding_scale", 1.0)


def _experts(keys: _Keys) -> ExpertConfig | None:
    num_experts = keys.count("expert_count", 0, low=0, high=4096)
    if num_experts == 0:
        return None
    return ExpertConfig(
        num_experts=num_experts,
        num_experts_per_tok=keys.count("expert_used_count", high=num_experts),
        moe_intermediate_size=keys.count(
            "expert_feed_forward_length", keys.count("feed_forward_length")
        ),
    )


def _state(keys: _Keys, hidden_size: int, *, is_needed: bool) -> StateConfig | None:
    """Read the recurrent layers; a file with layers without key/value heads must have some."""
    if keys.has("shortconv.l_cache"):
        return StateConfig(keys.count("shortconv.l_cache", low=2, high=64), hidden_size)
    if not is_needed and not keys.has("ssm.conv_kernel"):
        return None
    return StateConfig(
        conv_kernel=keys.count("ssm.conv_kernel", low=2, high=64),
        inner_size=keys.count("ssm.inner_size"),
        state_size=keys.count("ssm.state_size", high=4096),
        time_step_rank=keys.count("ssm.time_step_rank"),
    )
