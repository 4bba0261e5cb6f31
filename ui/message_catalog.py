"""Turns a Linguist .ts file into the bytes a QTranslator loads, so that no compile step is needed.

Source: qtranslator.cpp of Qt 6 (sections of a .qm file, ELF hash of source and comment).
"""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

_MAGIC = bytes.fromhex("3cb86418caef9c95cd211cbf60a1bddd")
_HASHES, _MESSAGES, _NUMERUS = 0x42, 0x69, 0x88
_END, _TRANSLATION, _SOURCE, _CONTEXT, _COMMENT = 1, 3, 6, 7, 8
# Opcodes of Qt's plural rules: "n is 1" picks the first form; no rule means one form for all.
_PLURAL_RULES = {"en": b"\x01\x01", "zh_CN": b""}


@dataclass(frozen=True, slots=True)
class CatalogMessage:
    """One finished message; forms has more than one text where the language has plurals."""

    context: str
    source: str
    forms: tuple[str, ...]


def read_ts(path: Path) -> list[CatalogMessage]:
    """Return the finished messages of a .ts file."""
    return [
        CatalogMessage(name, message.findtext("source", ""), forms)
        for context in ET.parse(path).getroot().iter("context")
        for name in [context.findtext("name", "")]
        for message in context.iter("message")
        for forms in [_forms(message.find("translation"))]
        if all(forms)
    ]


def compile_messages(messages: list[CatalogMessage], language: str) -> bytes:
    """Return a .qm file of these messages."""
    offsets: list[tuple[int, int]] = []
    body = b""
    for message in messages:
        offsets.append((_elf_hash(message.source.encode()), len(body)))
        body += _record(message)
    hashes = b"".join(struct.pack(">II", *pair) for pair in sorted(offsets))
    sections = ((_HASHES, hashes), (_MESSAGES, body), (_NUMERUS, _PLURAL_RULES[language]))
    return _MAGIC + b"".join(_section(tag, data) for tag, data in sections if data)


def _forms(translation: ET.Element | None) -> tuple[str, ...]:
    if translation is None or translation.get("type") in ("vanished", "obsolete"):
        return ("",)
    plural = translation.findall("numerusform")
    return tuple(form.text or "" for form in plural) if plural else (translation.text or "",)


def _record(message: CatalogMessage) -> bytes:
    texts = b"".join(_field(_TRANSLATION, form.encode("utf-16-be")) for form in message.forms)
    source = _field(_SOURCE, message.source.encode())
    context = _field(_CONTEXT, message.context.encode())
    return texts + _field(_COMMENT, b"") + source + context + bytes([_END])


def _field(tag: int, data: bytes) -> bytes:
    return struct.pack(">BI", tag, len(data)) + data


def _section(tag: int, data: bytes) -> bytes:
    return struct.pack(">BI", tag, len(data)) + data


def _elf_hash(data: bytes) -> int:
    value = 0
    for byte in data:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value ^= high >> 24
        value &= ~high & 0xFFFFFFFF
    return value or 1
