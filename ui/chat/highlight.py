"""Colours of code: Pygments tokens as runs of theme roles, line by line. Knows no widget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from pygments.lexer import Lexer
from pygments.lexers import find_lexer_class_for_filename, get_lexer_by_name
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Token,
    _TokenType,
)
from pygments.util import ClassNotFound

PLAIN_ROLE = "code_text"
COMMON = ("python", "bash", "json", "javascript", "html", "sql", "c++", "java", "rust", "go")

_ROLES = {
    Comment: "code_comment",
    Keyword: "code_keyword",
    Keyword.Type: "code_type",
    Keyword.Constant: "code_number",
    Name.Function: "code_function",
    Name.Class: "code_type",
    Name.Builtin: "code_function",
    Name.Decorator: "code_function",
    Name.Tag: "code_keyword",
    Name.Attribute: "code_function",
    Name.Exception: "code_type",
    String: "code_string",
    Number: "code_number",
    Operator: "code_operator",
    Operator.Word: "code_keyword",
    Punctuation: "code_operator",
    Token.Generic.Deleted: "danger",
    Token.Generic.Inserted: "code_string",
    Token.Generic.Heading: "code_keyword",
}


@dataclass(frozen=True, slots=True)
class Run:
    """A coloured piece of a line; start and length count UTF-16 units, as Qt does."""

    line: int
    start: int
    length: int
    role: str


@lru_cache(maxsize=64)
def lexer_for(info: str) -> Lexer | None:
    """Return the lexer for the words after a fence: a language or a file name."""
    name = info.split(maxsplit=1)[0].strip("{}.") if info.strip() else ""
    if not name or name.lower() in ("text", "txt", "plain", "plaintext"):
        return None
    try:
        return get_lexer_by_name(name.lower())
    except ClassNotFound:
        found = find_lexer_class_for_filename(info.strip()) if "." in info else None
        return found() if found else None


def preload(languages: Iterable[str] = COMMON) -> None:
    """Load the lexers of these languages; a first one takes 80 ms that nobody should wait for."""
    # The last one is nowhere: looking for it reads the list of installed plugins.
    for language in (*languages, "none"):
        if lexer := lexer_for(language):
            # Its patterns are compiled with the first text.
            list(lexer.get_tokens_unprocessed("\n"))


def color_runs(code: str, lexer: Lexer, *, first_line: int = 0) -> Iterator[Run]:
    """Yield the runs of code in order; first_line is the number of its first line."""
    line, column = first_line, 0
    for _, kind, text in lexer.get_tokens_unprocessed(code):
        role = role_of(kind)
        for index, piece in enumerate(text.split("\n")):
            if index:
                line, column = line + 1, 0
            length = utf16_length(piece)
            if length and role != PLAIN_ROLE:
                yield Run(line, column, length, role)
            column += length


@lru_cache(maxsize=512)
def role_of(kind: _TokenType | None) -> str:
    """Return the theme role of a Pygments token type, its own or its nearest ancestor's."""
    while kind is not None:
        if kind in _ROLES:
            return _ROLES[kind]
        kind = kind.parent
    return PLAIN_ROLE


def utf16_length(text: str) -> int:
    """Count the units that Qt counts: two for a character outside the basic plane."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
