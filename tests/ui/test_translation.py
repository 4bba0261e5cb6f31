from __future__ import annotations

import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QLocale, QTranslator

from ui.message_catalog import CatalogMessage, compile_messages, read_ts
from ui.translation import I18N, Language

ROOT = I18N.parent.parent
CHINESE = I18N / "reprise_zh_CN.ts"
ENGLISH = I18N / "reprise_en.ts"


def lupdate() -> Path:
    import PySide6

    name = "lupdate.exe" if sys.platform == "win32" else "lupdate"
    path = Path(PySide6.__file__).parent / name
    if not path.exists():
        pytest.skip("lupdate is not part of this PySide6")
    return path


def texts(path: Path) -> set[tuple[str, str]]:
    return {
        (context.findtext("name", ""), message.findtext("source", ""))
        for context in ET.parse(path).getroot().iter("context")
        for message in context.iter("message")
    }


@pytest.fixture
def language(qapp):
    result = Language()
    yield result
    result.remove()
    QLocale.setDefault(QLocale("en"))


def test_every_text_of_the_window_has_a_chinese_translation(tmp_path: Path) -> None:
    fresh = tmp_path / "reprise_zh_CN.ts"
    shutil.copy(CHINESE, fresh)
    sources = sorted(str(path) for path in (ROOT / "ui").rglob("*.py"))
    options = ["-silent", "-locations", "none", "-no-obsolete"]
    subprocess.run([lupdate(), *options, *sources, "-ts", fresh], check=True)
    done = {(message.context, message.source) for message in read_ts(CHINESE)}
    assert texts(fresh) - done == set()


def test_translations_keep_their_placeholders() -> None:
    for message in read_ts(CHINESE):
        for mark in ("{0}", "{1}", "{2}", "{3}", "{4}", "%n"):
            assert all((mark in form) == (mark in message.source) for form in message.forms), (
                message
            )


def test_english_has_both_plural_forms() -> None:
    assert all(len(message.forms) == 2 for message in read_ts(ENGLISH))
    plural = {(m.context, m.source) for m in read_ts(CHINESE) if "%n" in m.source}
    assert {(m.context, m.source) for m in read_ts(ENGLISH)} == plural


def test_language_switches_at_run_time_and_back(language: Language) -> None:
    translate = QCoreApplication.translate
    language.switch("zh_CN")
    assert translate("Actions", "New chat") == "新对话"
    language.switch("en")
    assert translate("Actions", "New chat") == "New chat"


def test_plural_forms_follow_the_number(language: Language) -> None:
    def tokens(n: int) -> str:
        return QCoreApplication.translate("ConversationListModel", "%n token(s) kept", "", n)

    language.switch("en")
    assert (tokens(1), tokens(2), tokens(0)) == ("1 token kept", "2 tokens kept", "0 tokens kept")
    language.switch("zh_CN")
    assert tokens(3) == "已保留 3 个词元"


def test_compiled_catalog_tells_contexts_apart(qapp) -> None:
    catalog = compile_messages(
        [CatalogMessage("X", "A", ("x",)), CatalogMessage("Y", "A", ("y",))], "en"
    )
    translator = QTranslator()
    assert translator.load(catalog)
    assert translator.translate("X", "A") == "x"
    assert translator.translate("Y", "A") == "y"
