"""From generated tokens to visible text: detokenizer, stop strings and reasoning in one line."""

from __future__ import annotations

from engine.events import Channel
from engine.text.detokenizer import StreamingDetokenizer
from engine.text.output_parser import OutputParser
from engine.text.stop import StopMatcher
from engine.text.tokenizer import Tokenizer


class ReplyText:
    """The text of one reply as it grows.

    continues: the reply goes on in the middle of a text.
    Usage: ``push`` each token, show the pieces; stop when ``is_stopped``; ``flush`` at the end.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        parser: OutputParser,
        stop: tuple[str, ...],
        *,
        continues: bool = False,
    ) -> None:
        self._eog_ids = tokenizer.eog_ids
        self._detokenizer = StreamingDetokenizer(tokenizer, is_start=not continues)
        self._parser = parser
        self._stop = StopMatcher(stop)
        self.is_stopped = False

    def ends_turn(self, token: int) -> bool:
        """Tell whether the token ends the model's turn; it has no visible text."""
        return token in self._eog_ids

    def push(self, token: int) -> list[tuple[Channel, str]]:
        """Take one token; return the visible pieces it completes, each of whole characters."""
        visible, self.is_stopped = self._stop.push(self._detokenizer.push(token))
        pieces = self._parser.push(visible)
        return pieces + self._parser.flush() if self.is_stopped else pieces

    def flush(self) -> list[tuple[Channel, str]]:
        """Return what was held back when the reply ends."""
        visible, self.is_stopped = self._stop.push(self._detokenizer.flush())
        if not self.is_stopped:
            visible += self._stop.flush()
        return self._parser.push(visible) + self._parser.flush()
