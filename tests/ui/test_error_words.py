"""Failures are told in the language of the window; what exactly was said stays with them."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QLocale

import app.errors
import engine.errors
from app.events import ErrorReport, Notice
from ui.error_words import notice_words, short_words, words_of
from ui.translation import Language

# Bases that are never raised themselves, and one that only the load's own caller meets.
NOT_SHOWN = {
    "AppError",
    "EngineError",
    "DatabaseError",
    "SharedStoreError",
    "LoadCancelledError",
}


def kinds() -> list[str]:
    return sorted(
        name
        for module in (app.errors, engine.errors)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Exception) and name not in NOT_SHOWN
    )


@pytest.fixture
def chinese(qapp):
    language = Language()
    language.switch("zh_CN")
    yield language
    language.remove()
    QLocale.setDefault(QLocale("en"))


@pytest.mark.parametrize("kind", kinds())
def test_every_typed_error_has_chinese_words(chinese, kind):
    words = words_of(ErrorReport(kind, "The English message."))
    assert words.said == "The English message."
    for text in (words.title, words.advice):
        assert any("一" <= letter <= "鿿" for letter in text)
    assert short_words(kind, "x") == words.title + words.advice


def test_an_unknown_kind_keeps_its_own_words(qapp):
    report = ErrorReport("ZeroDivisionError", "Something went wrong inside Reprise.")
    words = words_of(report)
    assert (words.title, words.advice, words.said) == (report.message, "", "")
    assert short_words(report.kind, report.message) == report.message
    assert notice_words(Notice("new", "As it is.")) == "As it is."


def test_notices_are_translated_and_keep_their_detail(chinese):
    assert "磁盘" in notice_words(Notice("kv_not_kept", "disk full"))
    assert "disk full" in notice_words(Notice("kv_not_kept", "disk full"))
