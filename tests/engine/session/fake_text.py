"""A byte tokenizer and a ChatML-like template: enough to plan prompts without a model."""

from __future__ import annotations

from collections.abc import Sequence

from engine.config import ChatMessage
from engine.errors import ChatTemplateError
from engine.session.prompt import PromptPlan
from engine.session.session import Session


class ByteTokenizer:
    """One token per byte; 256 is BOS."""

    vocab_size = 257
    bos_id = 256

    def __init__(self, *, adds_bos: bool = False) -> None:
        self.adds_bos = adds_bos

    def encode(
        self, text: str, *, add_special: bool = False, parse_special: bool = True
    ) -> list[int]:
        start = [self.bos_id] if add_special and self.adds_bos else []
        return start + list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")


class BracketTemplate:
    """[role|text] per message. A rewriting one drops all replies but the last from the history."""

    is_fallback = False

    def __init__(self, *, rewrites: bool = False, refuses_system_only: bool = False) -> None:
        self._rewrites = rewrites
        self._refuses_system_only = refuses_system_only

    def render(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool) -> str:
        if self._refuses_system_only and [m.role for m in messages] == ["system"]:
            raise ChatTemplateError("a conversation must have a user message")
        text = "".join(f"[{m.role}|{self._content(messages, i)}]" for i, m in enumerate(messages))
        return text + ("[assistant|" if add_generation_prompt else "")

    def closing_of(self, messages: Sequence[ChatMessage]) -> str:
        return "]"

    def text_after(
        self, messages: Sequence[ChatMessage], count: int, *, add_generation_prompt: bool
    ) -> str:
        rest = self.render(messages[count:], add_generation_prompt=add_generation_prompt)
        return f"]{rest}"

    def _content(self, messages: Sequence[ChatMessage], index: int) -> str:
        message = messages[index]
        is_old_reply = message.role == "assistant" and index < len(messages) - 1
        return "..." if self._rewrites and is_old_reply else message.content


def chat(*contents: str, system: str = "") -> tuple[ChatMessage, ...]:
    """Return messages of alternating authors, the user first."""
    start = (ChatMessage("system", system),) if system else ()
    roles = ("user", "assistant")
    return start + tuple(ChatMessage(roles[i % 2], text) for i, text in enumerate(contents))


def carry_out(session: Session, plan: PromptPlan) -> int:
    """Do to a session what the engine does with a plan; return where the reply starts."""
    session.cut(plan.num_kept)
    reply_start = len(session.token_ids)
    for segment in plan.segments:
        start = len(session.token_ids)
        session.append(segment.token_ids)
        if segment.digest is not None:
            session.close_span(segment.digest, start, is_open=False)
            reply_start = len(session.token_ids)
    return reply_start


def text_of(session: Session) -> str:
    """Return the log as text."""
    return ByteTokenizer().decode(session.token_ids)
