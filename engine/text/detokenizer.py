"""Token ids to text while they arrive: never half a character."""

from __future__ import annotations

import codecs

from engine.text.tokenizer import Tokenizer


class StreamingDetokenizer:
    """Turns a reply's tokens into text piece by piece; control tokens have no text.

    is_start: the reply begins here, so that the space SentencePiece puts before the first word is
    taken away. False where text goes on in the middle.
    """

    def __init__(self, tokenizer: Tokenizer, *, is_start: bool = True) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strips_space = is_start and tokenizer.adds_space_prefix

    def push(self, token_id: int) -> str:
        """Take one token and return the characters it completes, "" when there are none yet.

        Bytes that can begin no character become U+FFFD.
        """
        if self._tokenizer.is_special(token_id):
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._strips_space and data:
            data = data.removeprefix(b" ")
            self._strips_space = False
        return self._decoder.decode(data)

    def flush(self) -> str:
        """Return what is held back at the end of the reply: U+FFFD for half a character."""
        return self._decoder.decode(b"", final=True)
