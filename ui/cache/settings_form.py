"""The settings of the model's memory: wishes at the left, what is in force beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from app.events import CacheChanged, ModelInfo, SharedStoreChanged
from app.settings import needs_reload
from ui.cache import choices
from ui.cache.codec_check import CodecCheck
from ui.cache.setting_row import ChoiceRow, SettingRow, SliderRow, SwitchRow
from ui.cache.shared_row import SharedRow
from ui.formats import count_text, size_text
from ui.theme import Theme

if TYPE_CHECKING:
    from app.services import Services

PLAIN = (
    "keep_conversations_ready",
    "kv_codec",
    "context_length",
    "overflow",
    "hot_budget_bytes",
    "cold_budget_bytes",
)
EXPERT = (
    "prefetch",
    "parallel_sequences",
    "block_size",
    "num_threads",
    "offload_share",
    "session_timeout_minutes",
    "warm_budget_bytes",
    "eviction_order",
    "force_kv_codec",
    "shared_store_url",
)


class SettingsForm(QWidget):
    """Writes each change at once; those that need it offer to reload the model."""

    reload_requested = Signal()

    def __init__(self, services: Services, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._services = services
        self._model: ModelInfo | None = None
        self._cache: CacheChanged | None = None
        self.rows = self._build_rows(theme)
        self.accuracy = CodecCheck(theme)
        self.reload = QPushButton()
        self.reload.setProperty("kind", "primary")
        self.reload.clicked.connect(self.reload_requested)
        self.reload.hide()
        self.more = QPushButton()
        self.more.setCheckable(True)
        self.more.setProperty("kind", "link")
        self.more.toggled.connect(self._unfold)
        self._lay_out()
        self._share()
        self.retranslate()

    def set_model(self, model: ModelInfo | None) -> None:
        """Show the numbers of this model; a reload, if one was due, has happened."""
        self._model = model
        self.reload.hide()
        self.refresh()

    def set_cache(self, event: CacheChanged) -> None:
        """Show the budgets in force."""
        is_first = self._cache is None
        self._cache = event
        if is_first:
            self.refresh()

    @Slot(SharedStoreChanged)
    def show_shared(self, event: SharedStoreChanged) -> None:
        """Show how it stands with the shared store."""
        self.shared.show_state(event)

    @property
    def shared(self) -> SharedRow:
        """The row of the shared store."""
        row = self.rows["shared_store_url"]
        assert isinstance(row, SharedRow)
        return row

    def focus_first(self) -> None:
        """Put the cursor on the first setting."""
        self.rows["keep_conversations_ready"].control().setFocus()

    def reveal(self, name: str) -> SettingRow | None:
        """Unfold what hides a setting, put the cursor there, and return its row."""
        row = self.rows.get(name)
        if row is not None:
            if name in EXPERT:
                self.more.setChecked(True)
            row.control().setFocus()
        return row

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        for row in self.rows.values():
            row.apply_theme(theme, zoom)
        self.accuracy.apply_theme(theme, zoom)

    def retranslate(self) -> None:
        """Write every text in the language of the moment."""
        tag, reset = self.tr("reload"), self.tr("Reset")
        for name, (title, sentence) in self._texts().items():
            self.rows[name].set_texts(title, sentence, tag=tag, reset=reset)
        self.reload.setText(self.tr("Reload the model to apply"))
        self._unfold(self.more.isChecked())
        self.refresh()

    def refresh(self) -> None:
        """Show the settings as they are."""
        settings = self._services.settings.value
        effective = self._effective()
        for name, row in self.rows.items():
            value = getattr(settings, name)
            self._show(name, row, value)
            row.set_is_default(value == self._default(name))
            row.set_effective(effective.get(name, ""))
        reason = "" if settings.keep_conversations_ready else self.tr("Nothing is kept on disk.")
        self.rows["cold_budget_bytes"].set_unavailable(reason)
        is_missing = self._model is not None and not self._model.accelerator
        reason = self.tr("There is no graphics processor that can be used.") if is_missing else ""
        self.rows["offload_share"].set_unavailable(reason)
        self.accuracy.show_model(self._model)

    def _show(self, name: str, row: SettingRow, value: object) -> None:
        if isinstance(row, SwitchRow | SharedRow):
            row.set_value(value)
        elif isinstance(row, ChoiceRow | SliderRow):
            row.set_choices(self._choices(name), value)

    def _choices(self, name: str) -> list[choices.Choice]:
        model = self._model
        offered: dict[str, Callable[[], list[choices.Choice]]] = {
            "kv_codec": lambda: choices.precision_choices(model),
            "context_length": lambda: choices.context_choices(model),
            "overflow": lambda: choices.overflow_choices(model),
            "hot_budget_bytes": choices.hot_budget_choices,
            "warm_budget_bytes": choices.warm_budget_choices,
            "cold_budget_bytes": lambda: choices.cold_budget_choices(
                self._bytes_per_conversation()
            ),
            "eviction_order": choices.eviction_choices,
            "parallel_sequences": choices.parallel_choices,
            "block_size": choices.block_choices,
            "num_threads": choices.thread_choices,
            "offload_share": choices.offload_choices,
            "session_timeout_minutes": choices.timeout_choices,
        }
        return offered[name]()

    def _effective(self) -> dict[str, str]:
        model, now = self._model, self.tr("now {0}")
        if model is None:
            return {}
        settings = self._services.settings.value
        real = {
            "kv_codec": (model.kv_codec, model.kv_codec),
            "context_length": (model.context_length, count_text(model.context_length)),
            "block_size": (model.block_size, count_text(model.block_size)),
            "num_threads": (model.num_threads, count_text(model.num_threads)),
        }
        if model.num_offloaded:
            share = model.num_offloaded / model.num_layers
            layers = self.tr("{0} of {1} layers").format(model.num_offloaded, model.num_layers)
            real["offload_share"] = (share, layers)
        if self._cache:
            budget = self._cache.cold_budget_bytes
            real["cold_budget_bytes"] = (budget, size_text(budget))
        if self._cache and self._cache.breakdown:
            budget = self._cache.breakdown.tiers[0].budget_bytes
            real["hot_budget_bytes"] = (budget, size_text(budget))
        return {
            name: now.format(text)
            for name, (value, text) in real.items()
            if value != getattr(settings, name)
        }

    def _bytes_per_conversation(self) -> float | None:
        known = [c.num_tokens for c in self._services.chat.conversations() if c.num_tokens]
        if self._model is None or not known:
            return None
        per_token = dict(self._model.kv_bytes_per_token).get(self._model.kv_codec, 0)
        return mean(known) * per_token or None

    def _build_rows(self, theme: Theme) -> dict[str, SettingRow]:
        kinds = {
            "keep_conversations_ready": SwitchRow,
            "prefetch": SwitchRow,
            "force_kv_codec": SwitchRow,
            "hot_budget_bytes": SliderRow,
            "cold_budget_bytes": SliderRow,
            "shared_store_url": SharedRow,
        }
        rows: dict[str, SettingRow] = {}
        for name in (*PLAIN, *EXPERT):
            kind = kinds.get(name, ChoiceRow)
            rows[name] = kind(theme, needs_reload=needs_reload(name))
            rows[name].chosen.connect(partial(self._choose, name))
            rows[name].reset.connect(partial(self._reset, name))
        return rows

    def _share(self) -> None:
        """Let the row of the shared store speak with it."""
        self.shared.show_state(self._services.shared.state)
        self.shared.wanted.connect(self._services.shared.bring)

    def _lay_out(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(20)
        for name in (*PLAIN, *EXPERT):
            if name == EXPERT[0]:
                layout.addWidget(self.more)
            layout.addWidget(self.rows[name])
            if name == "kv_codec":
                layout.addWidget(self.accuracy)
        layout.addWidget(self.reload)

    @Slot(bool)
    def _unfold(self, is_open: bool) -> None:
        for name in EXPERT:
            self.rows[name].setVisible(is_open)
        self.more.setText(self.tr("Fewer settings") if is_open else self.tr("More settings"))

    def _choose(self, name: str, value: object) -> None:
        self._services.settings.update(**{name: value})
        self.reload.setVisible(self.reload.isVisible() or self._is_reload_due(name))
        self.refresh()

    def _reset(self, name: str) -> None:
        self._choose(name, self._default(name))

    def _is_reload_due(self, name: str) -> bool:
        return needs_reload(name) and self._model is not None

    def _default(self, name: str) -> object:
        return getattr(type(self._services.settings.value)(), name)

    def _texts(self) -> dict[str, tuple[str, str]]:
        return {**self._plain_texts(), **self._expert_texts()}

    def _plain_texts(self) -> dict[str, tuple[str, str]]:
        return {
            "keep_conversations_ready": (
                self.tr("Keep conversations ready"),
                self.tr("Stores what the model has read, so that nothing is read twice."),
            ),
            "kv_codec": (
                self.tr("Memory precision"),
                self.tr("Memory per 1,000 tokens; less precision holds more."),
            ),
            "context_length": (
                self.tr("Context length"),
                self.tr("How much of a conversation the model can see at once."),
            ),
            "overflow": (
                self.tr("When the context is full"),
                self.tr("The instructions and pinned messages always stay."),
            ),
            "hot_budget_bytes": (
                self.tr("Memory budget"),
                self.tr("RAM for conversations that go on instantly."),
            ),
            "cold_budget_bytes": (
                self.tr("Disk budget"),
                self.tr("The longest unused conversations make room for new ones."),
            ),
        }

    def _expert_texts(self) -> dict[str, tuple[str, str]]:
        return {
            "prefetch": (
                self.tr("Fetch ahead"),
                self.tr("Brings the likely next conversations into memory while nothing runs."),
            ),
            "parallel_sequences": (
                self.tr("Replies at once"),
                self.tr("Of different conversations; together they are faster than in turn."),
            ),
            "warm_budget_bytes": (
                self.tr("Reserve budget"),
                self.tr("RAM behind the memory that is computed in; of use with a graphics card."),
            ),
            "eviction_order": (
                self.tr("When the disk budget is full"),
                self.tr("What is given up first."),
            ),
            "block_size": (
                self.tr("Block size"),
                self.tr("Smaller blocks share more, larger ones are faster."),
            ),
            "num_threads": (
                self.tr("Processor threads"),
                self.tr("More than the real cores rarely helps."),
            ),
            "offload_share": (
                self.tr("Layers on the GPU"),
                self.tr("With their memory; the processor computes the others."),
            ),
            "session_timeout_minutes": (
                self.tr("Give memory back after"),
                self.tr("Idle conversations move from memory to disk."),
            ),
            "force_kv_codec": (
                self.tr("Any precision"),
                self.tr("Even one that fails the check because it loses too much on a model."),
            ),
            "shared_store_url": (
                self.tr("Shared store"),
                self.tr(
                    "A PostgreSQL server. Your conversations and what models have read of them "
                    "are sent there, readable for everyone who may read it, so that your other "
                    "machines can go on with them."
                ),
            ),
        }
