"""Everything the window can be told from a menu or a key, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from PySide6.QtCore import QT_TRANSLATE_NOOP, QCoreApplication, QObject
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu, QWidget

from ui.icons import icon
from ui.theme import Theme
from ui.translation import LANGUAGES


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One action. keys: shortcuts in Qt's portable words. icon: of resources/icons.

    text: as QT_TRANSLATE_NOOP returns it, which says no more than "object".
    """

    name: str
    text: object
    keys: tuple[str, ...] = ()
    icon: str = ""


SPECS = (
    ActionSpec("new_chat", QT_TRANSLATE_NOOP("Actions", "New chat"), ("Ctrl+N",), "pencil-line"),
    ActionSpec(
        "search",
        QT_TRANSLATE_NOOP("Actions", "Search conversations"),
        ("Ctrl+F", "Ctrl+K"),
        "search",
    ),
    ActionSpec("rename", QT_TRANSLATE_NOOP("Actions", "Rename conversation"), ("F2",), "pencil"),
    ActionSpec("delete", QT_TRANSLATE_NOOP("Actions", "Delete conversation"), (), "trash-2"),
    ActionSpec(
        "chat_instructions",
        QT_TRANSLATE_NOOP("Actions", "Instructions and sampling…"),
        ("Ctrl+I",),
        "file-text",
    ),
    ActionSpec(
        "instructions", QT_TRANSLATE_NOOP("Actions", "For all conversations…"), (), "layers"
    ),
    ActionSpec("import", QT_TRANSLATE_NOOP("Actions", "Import conversations…"), (), "file-plus"),
    ActionSpec("export_markdown", QT_TRANSLATE_NOOP("Actions", "This conversation, Markdown…")),
    ActionSpec("export_json", QT_TRANSLATE_NOOP("Actions", "This conversation, JSON…")),
    ActionSpec("export_all", QT_TRANSLATE_NOOP("Actions", "All conversations, JSON…")),
    ActionSpec("previous", QT_TRANSLATE_NOOP("Actions", "Conversation above"), ("Ctrl+PgUp",)),
    ActionSpec("next", QT_TRANSLATE_NOOP("Actions", "Conversation below"), ("Ctrl+PgDown",)),
    ActionSpec(
        "open_model",
        QT_TRANSLATE_NOOP("Actions", "Open a model file…"),
        ("Ctrl+O",),
        "folder-open",
    ),
    ActionSpec("models", QT_TRANSLATE_NOOP("Actions", "Models…"), ("Ctrl+Shift+M",), "box"),
    ActionSpec("unload", QT_TRANSLATE_NOOP("Actions", "Unload the model"), (), "power"),
    ActionSpec(
        "show_conversations",
        QT_TRANSLATE_NOOP("Actions", "Show or hide conversations"),
        ("Ctrl+B",),
        "panel-left",
    ),
    ActionSpec(
        "show_cache",
        QT_TRANSLATE_NOOP("Actions", "Show or hide the cache panel"),
        ("Ctrl+Shift+B",),
        "panel-right",
    ),
    ActionSpec("enter_sends", QT_TRANSLATE_NOOP("Actions", "Enter sends the message")),
    ActionSpec("settings", QT_TRANSLATE_NOOP("Actions", "Settings"), ("Ctrl+,",), "settings"),
    ActionSpec("zoom_in", QT_TRANSLATE_NOOP("Actions", "Larger"), ("Ctrl++", "Ctrl+=")),
    ActionSpec("zoom_out", QT_TRANSLATE_NOOP("Actions", "Smaller"), ("Ctrl+-",)),
    ActionSpec("zoom_reset", QT_TRANSLATE_NOOP("Actions", "Original size"), ("Ctrl+0",)),
    ActionSpec(
        "shortcuts",
        QT_TRANSLATE_NOOP("Actions", "Keyboard shortcuts"),
        ("Ctrl+/",),
        "keyboard",
    ),
    ActionSpec("about", QT_TRANSLATE_NOOP("Actions", "About Reprise"), (), "info"),
    ActionSpec("quit", QT_TRANSLATE_NOOP("Actions", "Quit"), ("Ctrl+Q",), "x"),
)

THEMES = {
    "system": QT_TRANSLATE_NOOP("Actions", "Like the system"),
    "light": QT_TRANSLATE_NOOP("Actions", "Light"),
    "dark": QT_TRANSLATE_NOOP("Actions", "Dark"),
}
_MENU: tuple[tuple[str, ...], ...] = (
    ("new_chat", "search", "rename", "delete"),
    ("chat_instructions", "instructions"),
    ("import",),
    ("open_model", "models", "unload"),
    ("show_conversations", "show_cache", "enter_sends", "settings"),
)
_EXPORT = ("export_markdown", "export_json", "export_all")
_ZOOM = ("zoom_in", "zoom_out", "zoom_reset")
_MENU_END: tuple[tuple[str, ...], ...] = (("shortcuts", "about"), ("quit",))


class Actions(QObject):
    """The actions, and the menu that shows them. Which slot does what is the window's business."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._by_name = {spec.name: QAction(window) for spec in SPECS}
        for spec in SPECS:
            keys = [QKeySequence(key) for key in spec.keys]
            self._by_name[spec.name].setShortcuts(keys)
        self._by_name["enter_sends"].setCheckable(True)
        self._by_name["quit"].setMenuRole(QAction.MenuRole.QuitRole)
        self._by_name["about"].setMenuRole(QAction.MenuRole.AboutRole)
        self._by_name["settings"].setMenuRole(QAction.MenuRole.PreferencesRole)
        window.addActions(list(self._by_name.values()))
        self.themes = _choices(window, THEMES)
        self.languages = _choices(window, {"system": "", **LANGUAGES})
        self.menu = QMenu(window)
        self._theme_menu = QMenu(window)
        self._language_menu = QMenu(window)
        self._zoom_menu = QMenu(window)
        self._export_menu = QMenu(window)
        self._fill_menu()
        self.retranslate()

    def __getitem__(self, name: str) -> QAction:
        return self._by_name[name]

    def check(self, theme: str, language: str) -> None:
        """Mark the chosen theme and language."""
        for group, value in ((self.themes, theme), (self.languages, language)):
            for action in group.actions():
                action.setChecked(action.data() == value)

    def apply_theme(self, theme: Theme) -> None:
        """Recolour the icons."""
        for spec in SPECS:
            if spec.icon:
                self._by_name[spec.name].setIcon(icon(spec.icon, theme.muted))
        self._theme_menu.setIcon(icon("sun", theme.muted))
        self._language_menu.setIcon(icon("languages", theme.muted))
        self._zoom_menu.setIcon(icon("search", theme.muted))
        self._export_menu.setIcon(icon("download", theme.muted))

    def retranslate(self) -> None:
        """Write every text in the language of the moment."""
        for spec in SPECS:
            self._by_name[spec.name].setText(QCoreApplication.translate("Actions", str(spec.text)))
        for action in self.themes.actions():
            action.setText(QCoreApplication.translate("Actions", str(THEMES[action.data()])))
        self.languages.actions()[0].setText(self.tr("Like the system"))
        self._theme_menu.setTitle(self.tr("Appearance"))
        self._language_menu.setTitle(self.tr("Language"))
        self._zoom_menu.setTitle(self.tr("Text size"))
        self._export_menu.setTitle(self.tr("Export"))

    def shortcut_list(self) -> list[tuple[str, str]]:
        """Return what can be reached by keys, with the keys as this system writes them."""
        form = QKeySequence.SequenceFormat.NativeText
        return [
            (action.text().rstrip("…"), QKeySequence.listToString(action.shortcuts(), form))
            for action in self._by_name.values()
            if action.shortcuts()
        ]

    def _fill_menu(self) -> None:
        self._export_menu.addActions([self._by_name[name] for name in _EXPORT])
        for names in _MENU:
            self.menu.addActions([self._by_name[name] for name in names])
            if "import" in names:
                self.menu.addMenu(self._export_menu)
            self.menu.addSeparator()
        self._theme_menu.addActions(self.themes.actions())
        self._language_menu.addActions(self.languages.actions())
        self._zoom_menu.addActions([self._by_name[name] for name in _ZOOM])
        for menu in (self._theme_menu, self._language_menu, self._zoom_menu):
            self.menu.addMenu(menu)
        for names in _MENU_END:
            self.menu.addSeparator()
            self.menu.addActions([self._by_name[name] for name in names])


def _choices(window: QWidget, texts: Mapping[str, object]) -> QActionGroup:
    group = QActionGroup(window)
    for value, text in texts.items():
        action = QAction(str(text), group, checkable=True)
        action.setData(value)
    return group
