"""Colours, fonts and the style sheet. Knows resources and Qt's values, no widget of ours."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette

RESOURCES = Path(__file__).resolve().parent.parent / "resources"
BODY_PX = 15
SMALL_PX = 13
TINY_PX = 12
CODE_PX = 13.5

_UI_FAMILIES = ("Inter", "Segoe UI Variable Text", "Segoe UI", "Noto Sans", "Cantarell", "Ubuntu")
_CJK_FAMILIES = (
    "PingFang SC",
    "Microsoft YaHei UI",
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
)
_MONO_FAMILIES = (
    "JetBrains Mono",
    "SF Mono",
    "Cascadia Code",
    "Menlo",
    "Consolas",
    "DejaVu Sans Mono",
)


@dataclass(frozen=True, slots=True)
class Theme:
    """Colour roles as "#rrggbb". *_text roles are the tier colours that are legible as words."""

    name: str
    is_dark: bool
    page: str
    side: str
    raised: str
    control: str
    hover: str
    pressed: str
    selected: str
    hairline: str
    user_bubble: str
    code_bg: str
    text: str
    muted: str
    faint: str
    accent: str
    accent_text: str
    accent_soft: str
    danger: str
    danger_soft: str
    focus: str
    link: str
    selection: str
    hot: str
    warm: str
    cold: str
    unread: str
    hot_text: str
    warm_text: str
    cold_text: str
    unread_text: str
    code_text: str
    code_keyword: str
    code_string: str
    code_number: str
    code_comment: str
    code_function: str
    code_type: str
    code_operator: str

    def color(self, role: str) -> QColor:
        """Return a role as a QColor; an unknown role is our own mistake."""
        return QColor(self.roles()[role])

    def roles(self) -> dict[str, str]:
        """Return the colour roles by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)[2:]}


@cache
def load_theme(name: str) -> Theme:
    """Read resources/themes/<name>.toml; name is "light" or "dark"."""
    tables = tomllib.loads((RESOURCES / "themes" / f"{name}.toml").read_text("utf-8"))
    roles = {role: value for table in tables.values() for role, value in table.items()}
    return Theme(name=name, is_dark=name == "dark", **roles)


def system_theme() -> str:
    """Return the theme the system asks for."""
    scheme = QGuiApplication.styleHints().colorScheme()
    return "dark" if scheme is Qt.ColorScheme.Dark else "light"


def stylesheet(theme: Theme, zoom: float = 1.0) -> str:
    """Fill resources/style.qss: @role becomes a colour, 15zpx a zoomed pixel size."""
    values = theme.roles() | {
        "theme": theme.name,
        "icons": (RESOURCES / "icons").as_posix(),
        "mono": ", ".join(f'"{family}"' for family in mono_font().families()),
    }
    text = (RESOURCES / "style.qss").read_text("utf-8")
    text = re.sub(r"@(\w+)", lambda found: values[found[1]], text)
    return re.sub(r"(\d+(?:\.\d+)?)zpx", lambda found: f"{zoomed(float(found[1]), zoom)}px", text)


def beside_icon(text: str) -> str:
    """Return a button's text set off from its icon; style sheets know no such gap."""
    return f"\u2002{text}"


def zoomed(pixels: float, zoom: float) -> int:
    """Scale a length by the zoom, to whole pixels."""
    return max(1, round(pixels * zoom))


def palette(theme: Theme) -> QPalette:
    """Return the palette for everything the style sheet does not reach."""
    roles = QPalette.ColorRole
    result = QPalette()
    for role, color in (
        (roles.Window, theme.page),
        (roles.Base, theme.page),
        (roles.AlternateBase, theme.side),
        (roles.Button, theme.control),
        (roles.ToolTipBase, theme.raised),
        (roles.Text, theme.text),
        (roles.WindowText, theme.text),
        (roles.ButtonText, theme.text),
        (roles.ToolTipText, theme.text),
        (roles.PlaceholderText, theme.faint),
        (roles.Highlight, theme.selection),
        (roles.HighlightedText, theme.text),
        (roles.Accent, theme.accent),
        (roles.Link, theme.link),
        (roles.LinkVisited, theme.link),
        (roles.Mid, theme.hairline),
        (roles.Light, theme.raised),
        (roles.Dark, theme.hairline),
    ):
        result.setColor(role, QColor(color))
    for role in (roles.Text, roles.WindowText, roles.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, role, QColor(theme.faint))
    return result


def body_font(zoom: float = 1.0, *, pixels: float = BODY_PX) -> QFont:
    """Return the text font: a good face of this system, then faces that have Chinese."""
    font = QFont()
    font.setFamilies([*_body_families()])
    font.setPixelSize(zoomed(pixels, zoom))
    font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    return font


def mono_font(zoom: float = 1.0, *, pixels: float = CODE_PX) -> QFont:
    """Return the code font."""
    font = QFont()
    font.setFamilies([*_mono_families()])
    font.setStyleHint(QFont.StyleHint.Monospace)
    font.setPixelSize(zoomed(pixels, zoom))
    return font


def number_font(zoom: float = 1.0, *, pixels: float = SMALL_PX) -> QFont:
    """Return the text font with digits of equal width."""
    font = body_font(zoom, pixels=pixels)
    font.setFeature(QFont.Tag.fromString("tnum"), 1)
    return font


@cache
def _body_families() -> tuple[str, ...]:
    present = set(QFontDatabase.families())
    system = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont).family()
    own = () if sys.platform == "darwin" else tuple(f for f in _UI_FAMILIES if f in present)
    return (*own[:1], system, *(f for f in _CJK_FAMILIES if f in present))


@cache
def _mono_families() -> tuple[str, ...]:
    present = set(QFontDatabase.families())
    system = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()
    own = tuple(f for f in _MONO_FAMILIES if f in present)
    return (*own[:1], system, *(f for f in _CJK_FAMILIES if f in present))
