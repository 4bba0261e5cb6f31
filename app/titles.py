"""A title for a conversation, taken from its first message until the model suggests one."""

from __future__ import annotations

import re

MAX_LENGTH = 48

# A sentence ends at a full stop, and at CJK marks, which no blank follows.
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])|\n+")
_MARKUP = re.compile(r"```.*?(```|\Z)|^[#>\-*\s]+|[*_`]+", re.DOTALL | re.MULTILINE)
_WORD_END = re.compile(r"[\s，、；：,;:]")
_TRAILING = " \t.。,，;；:：、"


def title_from(text: str) -> str:
    """Return the first sentence, at most MAX_LENGTH characters, cut at a word; "" for no words."""
    plain = _MARKUP.sub(" ", text).strip() or text.replace("`", " ").strip()
    sentences = (" ".join(piece.split()) for piece in _SENTENCE.split(plain))
    first = next((sentence for sentence in sentences if sentence), "")
    return first.rstrip(_TRAILING) if len(first) <= MAX_LENGTH else _cut(first)


def _cut(sentence: str) -> str:
    head = sentence[: MAX_LENGTH - 1]
    ends = [match.start() for match in _WORD_END.finditer(sentence[:MAX_LENGTH])]
    # Chinese and Japanese have no blanks between words; there any character is a good end.
    if ends and ends[-1] >= MAX_LENGTH // 2:
        head = head[: ends[-1]]
    return head.rstrip(_TRAILING) + "…"
