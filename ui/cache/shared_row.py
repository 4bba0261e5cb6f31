"""The store that several machines share: its address, whether it answers, what it has for us."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLineEdit, QMenu, QPushButton, QWidget

from app.errors import SharedAddressError, SharedStoreError
from app.events import SharedStoreChanged, SharedTitle
from app.shared_url import checked, masked, unmasked
from ui.background import Background
from ui.cache.setting_row import SettingRow
from ui.error_words import short_words
from ui.theme import Theme

NUM_OFFERED = 20
EXAMPLE = "postgresql://user:password@host/database"


class SharedRow(SettingRow):
    """The address is never shown with its password. wanted: ids of conversations to bring here."""

    wanted = Signal(object)

    def __init__(self, theme: Theme, *, needs_reload: bool = False) -> None:
        self.field = QLineEdit(placeholderText=EXAMPLE)
        self.test = QPushButton()
        self.status = QLabel(wordWrap=True)
        self.bring = QPushButton()
        super().__init__(theme, needs_reload=needs_reload)
        self._url = ""
        self._state = SharedStoreChanged()
        self._menu = QMenu(self)
        self._tests = Background("shared-test", self)
        self._lay_out()
        self.field.editingFinished.connect(self._edited)
        self.field.textEdited.connect(self._typed)
        self.test.clicked.connect(self._test)
        self.bring.clicked.connect(self._offer)
        self._tests.finished.connect(self._reached)
        self._tests.failed.connect(self._not_reached)

    def set_value(self, value: object) -> None:
        """Show an address, unless another one is being typed."""
        self._url = str(value)
        if not (self.field.hasFocus() and self.field.isModified()):
            self._show_address()
        self.test.setEnabled(bool(self.field.text()))

    def show_state(self, state: SharedStoreChanged) -> None:
        """Show how it stands with the server."""
        self._state = state
        words, is_bad = self._words(state)
        self._say(words, is_bad=is_bad)
        self.bring.setText(self.tr("%n not on this machine…", "", len(state.elsewhere)))
        self.bring.setVisible(bool(state.elsewhere))

    def set_texts(self, title: str, sentence: str, *, tag: str, reset: str) -> None:
        super().set_texts(title, sentence, tag=tag, reset=reset)
        self.test.setText(self.tr("Test"))
        self.test.setAccessibleName(self.tr("Test whether the shared store can be reached"))
        self.show_state(self._state)

    def control(self) -> QWidget:
        return self.field

    def menu(self, offered: Sequence[SharedTitle]) -> QMenu:
        """Return the menu of the conversations that can be brought here."""
        self._menu.clear()
        every = self._menu.addAction(self.tr("Bring all of them here"))
        every.triggered.connect(partial(self._want, [one.id for one in offered]))
        self._menu.addSeparator()
        for one in offered[:NUM_OFFERED]:
            # An ampersand would become a shortcut.
            title = (one.title or self.tr("New chat")).replace("&", "&&")
            action = self._menu.addAction(title)
            action.triggered.connect(partial(self._want, [one.id]))
        return self._menu

    def _lay_out(self) -> None:
        line = QHBoxLayout()
        line.setSpacing(8)
        line.addWidget(self.field, 1)
        line.addWidget(self.test)
        self.layout_.addLayout(line)
        self.bring.setProperty("kind", "link")
        self.layout_.addWidget(self.status)
        self.layout_.addWidget(self.bring, 0, Qt.AlignmentFlag.AlignLeft)
        self.layout_.addWidget(self.sentence)

    def _words(self, state: SharedStoreChanged) -> tuple[str, bool]:
        if not state.is_on:
            return "", False
        if state.error is not None:
            return short_words(state.error.kind, state.error.message), True
        if not state.is_connected:
            return self.tr("Connecting…"), False
        words = self._reach(state.num_conversations)
        if state.num_waiting:
            space = "" if words.endswith("。") else " "
            words += space + self.tr("%n state(s) to be sent.", "", state.num_waiting)
        return words, False

    def _reach(self, num_conversations: int) -> str:
        return self.tr("Reachable, %n conversation(s).", "", num_conversations)

    def _say(self, words: str, *, is_bad: bool) -> None:
        self.status.setProperty("role", "danger" if is_bad else "muted")
        self.status.style().polish(self.status)
        self.status.setText(words)
        self.status.setVisible(bool(words))

    @Slot(str)
    def _typed(self, text: str) -> None:
        self.test.setEnabled(bool(text))

    @Slot()
    def _edited(self) -> None:
        if not self.field.isModified():
            return
        url = unmasked(self.field.text().strip(), self._url)
        if url and not self._is_address(url):
            return
        before, self._url = self._url, url
        self._show_address()
        if url != before:
            self.chosen.emit(url)

    def _show_address(self) -> None:
        self.field.setText(masked(self._url))
        self.field.setCursorPosition(0)
        self.field.setToolTip(masked(self._url))

    def _is_address(self, url: str) -> bool:
        """Tell whether an address makes sense, and say so where it does not."""
        try:
            checked(url)
        except SharedAddressError as error:
            self._say(short_words(type(error).__name__, str(error)), is_bad=True)
            return False
        return True

    @Slot()
    def _test(self) -> None:
        url = unmasked(self.field.text().strip(), self._url)
        if url and self._is_address(url):
            self._say(self.tr("A moment…"), is_bad=False)
            self._tests.start(partial(_look, url))

    @Slot(object)
    def _reached(self, found: object) -> None:
        assert isinstance(found, int | tuple)
        if isinstance(found, tuple):
            self._say(short_words(*found), is_bad=True)
        else:
            self._say(self._reach(found), is_bad=False)

    @Slot(str)
    def _not_reached(self, problem: str) -> None:
        self._say(problem, is_bad=True)

    @Slot()
    def _offer(self) -> None:
        below = self.bring.mapToGlobal(self.bring.rect().bottomLeft())
        self.menu(self._state.elsewhere).popup(below)

    def _want(self, ids: list[str], is_checked: bool = False) -> None:
        self.wanted.emit(ids)


def _look(url: str) -> int | tuple[str, str]:
    """Return how many conversations are there, or kind and words of what is wrong."""
    from app.store.shared.store import look

    try:
        return look(url)[1]
    except SharedStoreError as error:
        return type(error).__name__, str(error)
