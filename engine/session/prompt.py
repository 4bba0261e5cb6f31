"""From messages to the tokens a session still lacks. History is never tokenised again.

Knows the chat template and the tokenizer; touches neither tensors nor memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import ChatMessage
from engine.errors import ChatTemplateError
from engine.session.session import Session, message_digest
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens to append; digest names the message they belong to, None for the reply's opening."""

    token_ids: tuple[int, ...]
    digest: str | None


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """What to keep of a log and what to append to it before a reply is generated.

    num_kept: messages of the log that stay. num_matching: messages that are unchanged; larger than
    num_kept where the template leaves no border to append at. continues: the log already ends in
    the reply that is to go on.
    """

    num_kept: int
    num_matching: int
    segments: tuple[Segment, ...]
    continues: bool = False

    @property
    def num_new_tokens(self) -> int:
        """Tokens the segments add."""
        return sum(len(segment.token_ids) for segment in self.segments)


class PromptPlanner:
    """Renders only what a session lacks, and cuts it at message borders."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template = template
        self._tokenizer = tokenizer

    def plan(self, session: Session, messages: Sequence[ChatMessage]) -> PromptPlan:
        """Plan the prompt that makes the model answer, or continue, the last message.

        Raises: ChatTemplateError when the template refuses the messages.
        """
        num_matching = session.num_matching(messages)
        if messages[-1].role != "assistant":
            return self._plan_answer(session, messages, num_matching)
        if num_matching == len(messages) and session.is_open_after(num_matching):
            return PromptPlan(num_matching, num_matching, (), continues=True)
        return self._plan_continuation(session, messages, num_matching)

    def closing_token_ids(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """Return the tokens that close the last message, as the next one brings them.

        Raises: ChatTemplateError when the template refuses the messages.
        """
        return tuple(self._encode_text(self._template.closing_of(messages), is_start=False))

    def _plan_answer(
        self, session: Session, messages: Sequence[ChatMessage], num_matching: int
    ) -> PromptPlan:
        for num_kept in range(num_matching, -1, -1):
            texts = self._missing_texts(session, messages, num_kept)
            if texts is not None:
                break
        assert texts is not None, "with nothing kept, the whole text is missing"
        segments = self._encode(texts, is_start=num_kept == 0)
        return PromptPlan(num_kept, num_matching, segments)

    def _plan_continuation(
        self, session: Session, messages: Sequence[ChatMessage], num_matching: int
    ) -> PromptPlan:
        before = messages[:-1]
        plan = self._plan_answer(session, before, min(num_matching, len(before)))
        ids = self._tokenizer.encode(messages[-1].content, parse_special=False)
        segments = (*plan.segments, Segment(tuple(ids), None))
        return PromptPlan(plan.num_kept, plan.num_matching, segments)

    def _missing_texts(
        self, session: Session, messages: Sequence[ChatMessage], num_kept: int
    ) -> list[tuple[str | None, str]] | None:
        """Return what a log that keeps num_kept messages lacks: a text per message, the opening.

        None when the log cannot be kept so far, because there is no border.
        """
        if num_kept and session.is_merged(num_kept):
            return None
        closing = self._closing_in_log(session, messages[:num_kept])
        full = self._rest(messages, num_kept, closing, add_generation_prompt=True)
        if full is None:
            return None
        return self._cut(messages, num_kept, closing, full)

    def _closing_in_log(self, session: Session, kept: Sequence[ChatMessage]) -> str:
        """Return the closing of the last kept message, "" where the log does not hold it yet."""
        if not kept or session.is_open_after(len(kept)):
            return ""
        return self._template.closing_of(kept)

    def _rest(
        self,
        messages: Sequence[ChatMessage],
        num_kept: int,
        closing: str,
        *,
        add_generation_prompt: bool,
    ) -> str | None:
        """Return the text behind the kept messages, None where the closing reads differently now.

        What stands before is not looked at: a template may render it anew, the log is the truth.
        """
        if num_kept == 0:
            return self._template.render(messages, add_generation_prompt=add_generation_prompt)
        text = self._template.text_after(
            messages, num_kept, add_generation_prompt=add_generation_prompt
        )
        return text.removeprefix(closing) if text and text.startswith(closing) else None

    def _cut(
        self, messages: Sequence[ChatMessage], num_kept: int, closing: str, full: str
    ) -> list[tuple[str | None, str]]:
        """Cut the missing text into one piece per message, and the reply's opening."""
        texts: list[tuple[str | None, str]] = []
        position = 0
        for count in range(num_kept + 1, len(messages) + 1):
            text = self._try_rest(messages[:count], num_kept, closing)
            is_border = text is not None and len(text) >= position and full.startswith(text)
            end = len(text) if text is not None and is_border else position
            texts.append((message_digest(messages[count - 1]), full[position:end]))
            position = end
        texts.append((None, full[position:]))
        return texts

    def _try_rest(self, messages: Sequence[ChatMessage], num_kept: int, closing: str) -> str | None:
        try:
            return self._rest(messages, num_kept, closing, add_generation_prompt=False)
        except ChatTemplateError:
            return None  # some templates refuse a history that ends in a system or user message

    def _encode(
        self, texts: Sequence[tuple[str | None, str]], *, is_start: bool
    ) -> tuple[Segment, ...]:
        segments = []
        for digest, text in texts:
            ids = self._encode_text(text, is_start=is_start)
            is_start = is_start and not text
            segments.append(Segment(tuple(ids), digest))
        return tuple(segments)

    def _encode_text(self, text: str, *, is_start: bool) -> list[int]:
        if not text:
            return []
        ids = self._tokenizer.encode(text, add_special=is_start)
        bos = self._tokenizer.bos_id
        if is_start and ids[:2] == [bos, bos]:
            del ids[0]  # the template wrote the BOS that the tokenizer adds
        return ids
