"""A model's chat template: messages to the text the model was trained to see.

Knows no tokens. Templates come with model files and run in a sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import Template, TemplateError

from engine.config import ChatMessage
from engine.errors import ChatTemplateError
from engine.gguf_file import GGUFFile
from engine.text.sandbox import MAX_SIZE, TemplateLimitError, TemplateSandbox

_MAX_SOURCE_LENGTH = 1 << 20
# Letters only, so that no template trims, splits or escapes it.
_SENTINEL = "qZxTheTextOfThisMessageGoesHerexZq"
_FALLBACK = (
    "{% for message in messages %}"
    "{{ '### ' + message.role.capitalize() + ':\\n' + message.content + '\\n\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '### Assistant:\\n' }}{% endif %}"
)
_TEMPLATE_FAILURES = (
    TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
_PROBE = tuple(
    ChatMessage(role, text)
    for role, text in (
        ("user", "What is two and two?"),
        ("assistant", "Two and two is four."),
        ("user", "And three more?"),
        ("assistant", "That makes seven."),
        ("user", "Thank you."),
    )
)


class ChatTemplate:
    """The chat template of one model.

    source: its Jinja text. is_fallback: the file has none, a plain one stands in.
    stop_strings: texts that end a reply because the plain template has no end-of-turn token.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        """Compile the template and learn what it can do.

        source: "" takes the plain template.
        Raises: ChatTemplateError when it cannot be compiled or takes too long.
        """
        self.is_fallback = not source.strip()
        self.source = _FALLBACK if self.is_fallback else source
        self.stop_strings = ("\n### User:", "### User:") if self.is_fallback else ()
        self._sandbox = TemplateSandbox()
        self._template = _compile(self._sandbox, self.source)
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._absent: dict[str, None] = {"tools": None, "documents": None}
        self._excess_end = ""
        self._learn_context()
        self.has_system_role = self._learn_system_role()
        self._excess_end = self._learn_excess_end(eos_token)
        self.is_prefix_stable = self._learn_stability()

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> ChatTemplate:
        """Read the template of a model file.

        Raises: ChatTemplateError when it cannot be compiled.
        """
        source = file.get("tokenizer.chat_template", "")
        return cls(
            source if isinstance(source, str) else "",
            bos_token=_token_text(file, "bos"),
            eos_token=_token_text(file, "eos"),
        )

    def render(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool) -> str:
        """Return the text of the messages, and of the opening of a reply where wanted.

        A system message goes into the first user message where the template knows none.
        Raises: ChatTemplateError when the template refuses the messages or takes too long.
        """
        if not self.has_system_role:
            messages = _fold_system(messages)
        text = self._run(messages, add_generation_prompt=add_generation_prompt)
        return text if add_generation_prompt else text.removesuffix(self._excess_end)

    def closing_of(self, messages: Sequence[ChatMessage]) -> str:
        """Return what the template puts after the last message's content, its end of turn first.

        Raises: ChatTemplateError when the template refuses the messages.
        """
        return self.text_after(messages, len(messages), add_generation_prompt=False)

    def text_after(
        self, messages: Sequence[ChatMessage], count: int, *, add_generation_prompt: bool
    ) -> str:
        """Return what stands behind the content of message number count in the whole text.

        This is what a log that already holds count messages lacks, even where the template renders
        earlier messages differently now; it begins with the closing of message number count.
        Raises: ChatTemplateError when the template refuses the messages.
        """
        marked = [*messages]
        marked[count - 1] = ChatMessage(messages[count - 1].role, _SENTINEL)
        text = self.render(marked, add_generation_prompt=add_generation_prompt)
        _, found, rest = text.rpartition(_SENTINEL)
        return rest if found else ""

    def _run(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool) -> str:
        context: dict[str, Any] = {
            **self._tokens,
            **self._absent,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            "add_generation_prompt": add_generation_prompt,
        }
        self._sandbox.budget.restart()
        try:
            return _collect(self._template, context)
        except _TEMPLATE_FAILURES as error:
            raise ChatTemplateError(
                "The model's chat template cannot show this conversation.",
                detail=f"{type(error).__name__}: {str(error)[:500]}",
            ) from error

    def _try(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool) -> str | None:
        """Return a probe's text, None where the template refuses it; harm is never tried twice."""
        try:
            return self.render(messages, add_generation_prompt=add_generation_prompt)
        except ChatTemplateError as error:
            if isinstance(error.__cause__, TemplateLimitError | RecursionError | MemoryError):
                raise
            return None

    def _learn_context(self) -> None:
        """Find out whether the template loops over tools without asking if there are any."""
        self.has_system_role = True
        if self._try(_PROBE[:1], add_generation_prompt=True) is None:
            self._absent = {}

    def _learn_system_role(self) -> bool:
        messages = (ChatMessage("system", _SENTINEL), *_PROBE[:1])
        text = self._try(messages, add_generation_prompt=True)
        return text is not None and _SENTINEL in text

    def _learn_excess_end(self, eos_token: str) -> str:
        """Return the EOS that some templates put at the very end, and only there."""
        shorter = self._try(_PROBE[:2], add_generation_prompt=False)
        longer = self._try(_PROBE[:3], add_generation_prompt=False)
        if not shorter or not longer or not eos_token or longer.startswith(shorter):
            return ""
        is_excess = shorter.endswith(eos_token) and longer.startswith(
            shorter.removesuffix(eos_token)
        )
        return eos_token if is_excess else ""

    def _learn_stability(self) -> bool:
        """Whether a log that grows turn by turn equals the text rendered at once."""
        log = ""
        for count in range(1, len(_PROBE) + 1, 2):
            prompt = self._try(_PROBE[:count], add_generation_prompt=True)
            if prompt is None or not prompt.startswith(log):
                return False
            if count < len(_PROBE):
                reply = _PROBE[: count + 1]
                log = prompt + reply[-1].content + self.closing_of(reply)
        return True


def _compile(sandbox: TemplateSandbox, source: str) -> Template:
    try:
        if len(source) > _MAX_SOURCE_LENGTH:
            raise TemplateLimitError("the template is too long")
        return sandbox.from_string(source)
    except (*_TEMPLATE_FAILURES, SyntaxError) as error:
        raise ChatTemplateError(
            "The model's chat template cannot be read.",
            detail=f"{type(error).__name__}: {str(error)[:500]}",
        ) from error


def _collect(template: Template, context: dict[str, Any]) -> str:
    pieces: list[str] = []
    length = 0
    for piece in template.generate(context):
        length += len(piece)
        if length > MAX_SIZE:
            raise TemplateLimitError("the text is too long")
        pieces.append(piece)
    return "".join(pieces)


def _fold_system(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Put the system text at the beginning of the first user message."""
    system = "\n\n".join(m.content for m in messages if m.role == "system" and m.content)
    others = [m for m in messages if m.role != "system"]
    if not system:
        return others
    if not others or others[0].role != "user":
        return [ChatMessage("user", system), *others]
    return [ChatMessage("user", f"{system}\n\n{others[0].content}"), *others[1:]]


def _token_text(file: GGUFFile, name: str) -> str:
    """Return the text of the BOS or EOS token, "" where the file has none."""
    token_id = file.get(f"tokenizer.ggml.{name}_token_id", None)
    tokens = file.get("tokenizer.ggml.tokens", [])
    if not isinstance(token_id, int) or not isinstance(tokens, list):
        return ""
    return str(tokens[token_id]) if 0 <= token_id < len(tokens) else ""
