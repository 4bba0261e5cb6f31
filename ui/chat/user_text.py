"""What a person typed, shown as typed: only fenced blocks are told apart."""

from __future__ import annotations

import re

from ui.chat.elements import Code, Element, Paragraph
from ui.chat.markdown import clean
from ui.chat.spans import plain_spans

_FENCED = re.compile(r"^(`{3,})([^`\n]*)\n(.*?)(?:^\1`*[ ]*$|\Z)", re.DOTALL | re.MULTILINE)


def parse_user(text: str) -> list[Element]:
    """Return paragraphs and code of a message as it was written."""
    elements: list[Element] = []
    text, end = clean(text), 0
    for found in _FENCED.finditer(text):
        elements += _paragraphs(text[end : found.start()])
        elements.append(Code(found[3].removesuffix("\n"), found[2].strip()))
        end = found.end()
    return elements + _paragraphs(text[end:])


def fenced(name: str, content: str) -> str:
    """Return an attached file as the fenced block that goes into the message."""
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{name.replace('`', '')}\n{content.rstrip()}\n{fence}"


def _paragraphs(text: str) -> list[Element]:
    pieces = re.split(r"\n{2,}", text.strip("\n"))
    return [Paragraph(plain_spans(piece)) for piece in pieces if piece.strip()]
