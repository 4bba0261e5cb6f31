from __future__ import annotations

import pytest

from app.titles import MAX_LENGTH, title_from


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello there. How are you?", "Hello there"),
        ("What is 3.5 + 1? Explain.", "What is 3.5 + 1?"),
        ("  \n\nFirst line\nsecond line", "First line"),
        ("请解释量子纠缠。谢谢", "请解释量子纠缠"),
        ("你好！我想问一下", "你好！"),
        ("# Heading\ntext", "Heading"),
        ("**Bold** question", "Bold question"),
        ("```py\nprint(1)\n```\nWhy does this fail", "Why does this fail"),
        ("", ""),
        ("```", ""),
    ],
)
def test_a_title_is_the_first_sentence(text, title):
    assert title_from(text) == title


def test_a_long_sentence_is_cut_at_a_word():
    title = title_from("Please explain how the paged attention memory is shared between chats")
    assert title == "Please explain how the paged attention memory…"


def test_a_long_chinese_sentence_is_cut_at_any_character():
    title = title_from("量子" * 60)
    assert len(title) == MAX_LENGTH
    assert title.endswith("…")
