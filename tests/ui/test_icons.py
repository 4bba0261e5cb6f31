from __future__ import annotations

from PySide6.QtGui import QColor

from ui.icons import icon, pixmap


def test_icon_is_drawn_in_the_colour_asked_for(qapp) -> None:
    image = pixmap("plus", "#ff0000", 24).toImage()
    inked = [
        image.pixelColor(x, y)
        for x in range(image.width())
        for y in range(image.height())
        if image.pixelColor(x, y).alpha() > 200
    ]
    assert inked
    assert all(color.red() > 200 and color.green() < 40 for color in inked)


def test_disabled_icon_is_fainter(qapp) -> None:
    from PySide6.QtGui import QIcon

    made = icon("square", QColor("#000000").name())
    normal, disabled = (
        made.pixmap(24, 24, mode).toImage() for mode in (QIcon.Mode.Normal, QIcon.Mode.Disabled)
    )
    darkest = max(normal.pixelColor(x, 12).alpha() for x in range(normal.width()))
    faintest = max(disabled.pixelColor(x, 12).alpha() for x in range(disabled.width()))
    assert faintest < darkest
