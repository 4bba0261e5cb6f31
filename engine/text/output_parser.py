"""Which part of a reply is reasoning and which is the answer, while it grows."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import ChatMessage
from engine.errors import ChatTemplateError
from engine.events import Channel
from engine.text.chat_template import ChatTemplate
from engine.text.stop import held_back_length

_PROBE = "Hello, who are you?"
_HARMONY_HEADERS = ("<|channel|>", "<|start|>", "<|end|>")
_HARMONY_BODY = "<|message|>"
Pieces = list[tuple[Channel, str]]


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """How a family marks reasoning. ignored: markers around the answer that are not shown."""

    opening: str
    closing: str
    ignored: tuple[str, ...] = ()


_THINK = ReasoningTags("<think>", "</think>")
_KNOWN_TAGS = (
    ReasoningTags("[THINK]", "[/THINK]"),
    ReasoningTags("<seed:think>", "</seed:think>"),
    ReasoningTags(
        "<|START_THINKING|>", "<|END_THINKING|>", ("<|START_RESPONSE|>", "<|END_RESPONSE|>")
    ),
    ReasoningTags("<|channel>thought", "<channel|>"),
)


class OutputParser:
    """Sorts a reply's text into channels; a marker that may still grow is held back.

    Tags count only where a reply begins: later ones are text about tags.
    """

    def __init__(self, template: ChatTemplate) -> None:
        """Learn from the template which tags its family uses and whether the prompt opens one."""
        self._format: _Tagged | _Harmony
        if _HARMONY_BODY in template.source and _HARMONY_HEADERS[0] in template.source:
            self._format = _Harmony()
        else:
            tags = _tags_of(template.source)
            self._format = _Tagged(tags, is_open=_opens_reasoning(template, tags))

    def push(self, text: str) -> Pieces:
        """Take a piece of text; return the pieces to show, each with its channel."""
        return _joined(self._format.push(text))

    def flush(self) -> Pieces:
        """Return what is held back when the reply ends."""
        return _joined(self._format.flush())


def parse_reply(text: str, tags: ReasoningTags = _THINK) -> tuple[str, str]:
    """Split a whole reply into (content, reasoning).

    A reply that closes reasoning it never opened began inside it.
    """
    is_open = tags.closing in text and tags.opening not in text
    parser = _Tagged(tags, is_open=is_open)
    pieces = parser.push(text) + parser.flush()
    content, reasoning = (
        "".join(piece for channel, piece in pieces if channel is wanted)
        for wanted in (Channel.CONTENT, Channel.REASONING)
    )
    return content, reasoning.strip()


class _Tagged:
    """Reasoning between two tags at the beginning, the answer after it."""

    def __init__(self, tags: ReasoningTags, *, is_open: bool) -> None:
        self._tags = tags
        self._channel = Channel.REASONING if is_open else Channel.CONTENT
        self._pending = ""
        self._strips = is_open
        self._may_open = True

    def push(self, text: str) -> Pieces:
        self._pending += text
        pieces: Pieces = []
        while self._step(pieces):
            pass
        return pieces

    def flush(self) -> Pieces:
        text, self._pending = self._pending, ""
        return self._emitted(text)

    def _step(self, pieces: Pieces) -> bool:
        """Take the next marker, or show what is surely none; False when nothing more can be."""
        if self._may_open and not self._pending.strip():
            return False
        markers = self._markers()
        if not markers and not self._may_open:
            pieces += self.flush()
            return False
        found = [(at, m) for m in markers if (at := self._pending.find(m)) >= 0]
        if self._may_open and self._is_opening_possible():
            return self._take_opening()
        self._may_open = False
        if found:
            position, marker = min(found)
            pieces += self._emitted(self._pending[:position])
            self._take_marker(marker, position)
            return True
        held = held_back_length(self._pending, markers)
        cut = len(self._pending) - held
        pieces += self._emitted(self._pending[:cut])
        self._pending = self._pending[cut:]
        return False

    def _markers(self) -> tuple[str, ...]:
        if self._channel is Channel.REASONING:
            return (self._tags.closing,)
        return self._tags.ignored

    def _is_opening_possible(self) -> bool:
        begin, opening = self._pending.lstrip(), self._tags.opening
        return begin.startswith(opening) or opening.startswith(begin)

    def _take_opening(self) -> bool:
        begin, opening = self._pending.lstrip(), self._tags.opening
        if not begin.startswith(opening):
            return False
        self._pending = begin[len(opening) :]
        self._channel, self._may_open, self._strips = Channel.REASONING, False, True
        return True

    def _take_marker(self, marker: str, position: int) -> None:
        self._pending = self._pending[position + len(marker) :]
        if marker == self._tags.closing:
            self._channel = Channel.CONTENT
            self._strips = True

    def _emitted(self, text: str) -> Pieces:
        """Return the text with its channel, without white space after a tag."""
        if self._strips:
            text = text.lstrip()
        if not text:
            return []
        self._strips = False
        return [(self._channel, text)]


class _Harmony:
    """Messages of `<|channel|>name<|message|>text<|end|>`; only the channel "final" is content.

    Source: https://cookbook.openai.com/articles/openai-harmony
    """

    def __init__(self) -> None:
        self._is_header = True
        self._channel = Channel.CONTENT
        self._header = ""
        self._pending = ""

    def push(self, text: str) -> Pieces:
        self._pending += text
        pieces: Pieces = []
        markers = (*_HARMONY_HEADERS, _HARMONY_BODY)
        while found := [(at, m) for m in markers if (at := self._pending.find(m)) >= 0]:
            position, marker = min(found)
            pieces += self._taken(self._pending[:position])
            self._pending = self._pending[position + len(marker) :]
            self._enter(marker)
        cut = len(self._pending) - held_back_length(self._pending, markers)
        pieces += self._taken(self._pending[:cut])
        self._pending = self._pending[cut:]
        return pieces

    def flush(self) -> Pieces:
        pieces = self._taken(self._pending)
        self._pending = ""
        return pieces

    def _enter(self, marker: str) -> None:
        self._is_header = marker != _HARMONY_BODY
        if self._is_header:
            self._header = ""
        else:
            is_final = self._header.strip().startswith("final")
            self._channel = Channel.CONTENT if is_final else Channel.REASONING

    def _taken(self, text: str) -> Pieces:
        if self._is_header:
            self._header += text
            return []
        return [(self._channel, text)] if text else []


def _joined(pieces: Pieces) -> Pieces:
    """Join neighbours of one channel."""
    if len(pieces) < 2:
        return pieces
    result: Pieces = []
    for channel, text in pieces:
        if result and result[-1][0] is channel:
            result[-1] = (channel, result[-1][1] + text)
        else:
            result.append((channel, text))
    return result


def _tags_of(source: str) -> ReasoningTags:
    found = (tags for tags in _KNOWN_TAGS if tags.opening in source or tags.closing in source)
    return next(found, _THINK)


def _opens_reasoning(template: ChatTemplate, tags: ReasoningTags) -> bool:
    """Whether the prompt itself ends inside reasoning, so that the reply begins there."""
    try:
        prompt = template.render([ChatMessage("user", _PROBE)], add_generation_prompt=True)
    except ChatTemplateError:
        return False
    tail = prompt.rpartition(_PROBE)[2]
    return tail.rfind(tags.opening) > tail.rfind(tags.closing)
