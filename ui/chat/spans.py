"""Inline markdown-it tokens to spans: what is bold, what is code, what may be opened."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from markdown_it.token import Token

from ui.chat.elements import Span, Style

_STYLES = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRIKE}
_BREAKS = ("softbreak", "hardbreak")
_ADDRESS = re.compile(
    r"https?://[^\s<>\"'`\u3000-\u303f\uff00-\uffef]+[^\s<>\"'`.,;:!?\])}\u3000-\u303f\uff00-\uffef]"
)


def inline_spans(tokens: Iterable[Token]) -> tuple[Span, ...]:
    """Return the spans of one inline run; neighbours of equal look are joined."""
    writer = _SpanWriter()
    for token in tokens:
        writer.take(token)
    return tuple(writer.spans)


def plain_spans(text: str) -> tuple[Span, ...]:
    """Return text as it is, with its bare web addresses as links."""
    return tuple(_with_links(Span(text)))


def openable(href: str) -> str:
    """Return href if it may be opened in a browser, else ""."""
    return href if href.lower().startswith(("http://", "https://")) else ""


class _SpanWriter:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._style = Style.PLAIN
        self._href = ""

    def take(self, token: Token) -> None:
        if token.type == "text":
            self._add_text(token.content)
        elif token.type in _BREAKS:
            self._add(Span("\n", self._style, self._href))
        elif token.type == "code_inline":
            self._add(Span(token.content, self._style | Style.CODE, self._href))
        elif token.type == "math":
            self._add(Span(token.content, self._style | Style.MATH))
        elif token.type == "image":
            self._add_image(token)
        else:
            self._change_style(token)

    def _change_style(self, token: Token) -> None:
        if token.tag == "a":
            self._href = openable(str(token.attrGet("href") or "")) if token.nesting > 0 else ""
        elif token.nesting > 0:
            self._style |= _STYLES.get(token.tag, Style.PLAIN)
        else:
            self._style &= ~_STYLES.get(token.tag, Style.PLAIN)

    def _add_text(self, text: str) -> None:
        span = Span(text, self._style, self._href)
        for piece in [span] if self._href else _with_links(span):
            self._add(piece)

    def _add_image(self, token: Token) -> None:
        # A picture is only named: loading it would tell a server that this reply was read.
        source = str(token.attrGet("src") or "")
        self._add(Span(token.content or source, self._style, self._href or openable(source)))

    def _add(self, span: Span) -> None:
        last = self.spans[-1] if self.spans else None
        if last and (last.style, last.href) == (span.style, span.href):
            self.spans[-1] = replace(last, text=last.text + span.text)
        elif span.text:
            self.spans.append(span)


def _with_links(span: Span) -> list[Span]:
    pieces: list[Span] = []
    end = 0
    for found in _ADDRESS.finditer(span.text):
        pieces.append(replace(span, text=span.text[end : found.start()]))
        pieces.append(replace(span, text=found[0], href=found[0]))
        end = found.end()
    pieces.append(replace(span, text=span.text[end:]))
    return [piece for piece in pieces if piece.text]
