from __future__ import annotations

import re

import pytest

from ui.theme import RESOURCES, Theme, load_theme, stylesheet, zoomed

SURFACES = ("page", "side", "raised", "user_bubble", "selected", "hover", "control")
WORDS = (
    "text",
    "muted",
    "faint",
    "accent",
    "danger",
    "link",
    "hot_text",
    "warm_text",
    "cold_text",
    "unread_text",
)
THEMES = ("light", "dark")


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(theme: Theme, first: str, second: str) -> float:
    values = sorted(luminance(theme.roles()[role]) for role in (first, second))
    return (values[1] + 0.05) / (values[0] + 0.05)


@pytest.mark.parametrize("name", THEMES)
@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("word", WORDS)
def test_every_text_role_passes_contrast_aa(name: str, surface: str, word: str) -> None:
    assert contrast(load_theme(name), surface, word) >= 4.5


@pytest.mark.parametrize("name", THEMES)
@pytest.mark.parametrize(
    "pair",
    [
        ("accent", "accent_text"),
        ("hot_text", "accent_text"),
        ("accent_soft", "accent"),
        ("danger_soft", "danger"),
        ("selection", "text"),
        ("text", "page"),
    ],
)
def test_text_on_coloured_ground_passes_contrast_aa(name: str, pair: tuple[str, str]) -> None:
    assert contrast(load_theme(name), *pair) >= 4.5


@pytest.mark.parametrize("name", THEMES)
def test_code_colours_pass_contrast_aa(name: str) -> None:
    theme = load_theme(name)
    roles = [role for role in theme.roles() if role.startswith("code_") and role != "code_bg"]
    assert all(contrast(theme, "code_bg", role) >= 4.5 for role in roles)


@pytest.mark.parametrize("name", THEMES)
@pytest.mark.parametrize("role", ["hot", "warm", "cold", "unread", "focus"])
def test_tier_colours_and_focus_ring_stand_out(name: str, role: str) -> None:
    theme = load_theme(name)
    assert min(contrast(theme, surface, role) for surface in ("page", "side")) >= 3.0


@pytest.mark.parametrize("name", THEMES)
def test_stylesheet_leaves_no_placeholder(name: str, qapp) -> None:
    sheet = stylesheet(load_theme(name), 1.25)
    assert "@" not in sheet
    assert "zpx" not in sheet


@pytest.mark.parametrize("name", THEMES)
def test_stylesheet_names_only_images_that_exist(name: str, qapp) -> None:
    paths = re.findall(r'url\("([^"]+)"\)', stylesheet(load_theme(name)))
    assert paths
    assert all((RESOURCES / path).exists() for path in paths)


def test_zoom_never_loses_a_line() -> None:
    assert zoomed(1, 0.3) == 1
    assert zoomed(15, 2.0) == 30
