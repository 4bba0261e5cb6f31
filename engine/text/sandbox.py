"""A Jinja environment for templates of strangers: no attributes of Python, bounded work.

Templates come with model files, so they are input of unknown intent: each loop step and macro call
counts, time is limited, and no single value may grow without end.
"""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_SIZE = 1 << 24
_MAX_STEPS = 2_000_000
_MAX_SECONDS = 2.0
_MAX_WIDTH = 10_000
_MAX_EXPONENT = 64
_WIDENING_METHODS = frozenset(
    ("center", "expandtabs", "format", "format_map", "ljust", "rjust", "translate", "zfill")
)
_WIDENING_FILTERS = ("batch", "center", "filesizeformat", "format", "pprint", "slice", "wordwrap")


class TemplateLimitError(TemplateError):
    """A template asks for more work or memory than a chat needs."""


class Budget:
    """What one rendering may still spend."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin a rendering."""
        self._steps = _MAX_STEPS
        # Of this thread's own work: a busy machine is no fault of the template.
        self._deadline = time.thread_time() + _MAX_SECONDS

    def spend(self) -> None:
        """Count one step.

        Raises: TemplateLimitError when there are too many, or time is up.
        """
        self._steps -= 1
        if self._steps < 0 or time.thread_time() > self._deadline:
            raise TemplateLimitError("the template takes too long")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment chat templates expect, within bounds."""

    intercepted_binops = frozenset(("*", "**", "%", "+"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag]
        )
        self.budget = Budget()
        for name in _WIDENING_FILTERS:
            del self.filters[name]
        self.filters |= {
            "tojson": _to_json,
            "indent": _indent,
            "join": _join,
            "replace": _replace,
            "_spend": _spend,
            "_bounded": _bounded,
            "_concatenate": _concatenate,
        }
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse operations whose result would not be bounded by its operands."""
        if operator == "*":
            _check_size(_size(left) * _size(right))
        if operator == "**" and (abs(right) > _MAX_EXPONENT or abs(left) > MAX_SIZE):
            raise TemplateLimitError("a number is too large")
        if operator == "%" and isinstance(left, str):
            _check_widths(left)
        return _bounded(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Leave out string methods that widen text by a number."""
        is_widening = isinstance(obj, str) and attr in _WIDENING_METHODS
        return not is_widening and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """Offer no safe variant of str.format either: its widths are as hard to bound."""

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function for the template; its result must stay within bounds."""
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name == "replace":
            _check_replacement(owner, *args[:2])
        if isinstance(owner, str) and name == "join":
            return _join_items(owner, list(args[0]))
        return _bounded(super().call(__context, __obj, *args, **kwargs))

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """Compile the template with its loops, macros, joins and assignments under watch."""
        return super()._generate(_Watch().visit(source), *args, **kwargs)


class _Watch(NodeTransformer):
    """Puts the checks into a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        return self._counted(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._counted(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._counted(node)

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        assert isinstance(node.node, nodes.Expr)
        node.node = _filtered(node.node, "_bounded")
        return node

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.filter = nodes.Filter(node.filter, "_bounded", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_concatenate")

    def _counted(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        step = _filtered(nodes.Const(0, lineno=node.lineno), "_spend")
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        return node  # type: ignore[no-any-return]


class _GenerationTag(Extension):
    """`{% generation %}` marks text for training; here it is only text."""

    tags = {"generation"}  # noqa: RUF012  # the base class declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@pass_context
def _spend(context: Context, _: object) -> None:
    """Count one step; the context keeps the compiler from doing so once and for all."""
    environment = context.environment
    assert isinstance(environment, TemplateSandbox)
    environment.budget.spend()


def _size(value: object) -> int:
    if isinstance(value, str | list | tuple):
        return len(value)
    return max(1, abs(value)) if isinstance(value, int) else 1


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise TemplateLimitError("a text is too long")


def _bounded(value: Any) -> Any:
    if isinstance(value, str | list | tuple):
        _check_size(len(value))
    return value


def _concatenate(values: list[Any]) -> str:
    texts = [str(value) for value in values]
    _check_size(sum(map(len, texts)))
    return "".join(texts)


def _join(value: Any, separator: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        value = [item[attribute] for item in value]
    return _join_items(separator, [] if isinstance(value, Undefined) else list(value))


def _join_items(separator: str, items: list[Any]) -> str:
    texts = [str(item) for item in items]
    _check_size(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _replace(value: str, old: str, new: str, count: int = -1) -> str:
    _check_replacement(str(value), old, new)
    return str(value).replace(old, new, count)


def _check_replacement(text: str, old: object = "", new: object = "") -> None:
    _check_size(len(text) + (text.count(str(old)) + 1) * len(str(new)))


def _indent(value: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
    """Do as Jinja's filter does, up to a sane width."""
    if width > _MAX_WIDTH:
        raise TemplateLimitError("an indentation is too wide")
    lines = str(value).split("\n")
    _check_size(len(value) + width * len(lines))
    indented = [" " * width + line if line or blank else line for line in lines[1:]]
    return "\n".join([" " * width + lines[0] if first else lines[0], *indented])


def _check_widths(text: str) -> None:
    if any(int(digits) > _MAX_WIDTH for digits in re.findall(r"\d{1,9}", text)) or "*" in text:
        raise TemplateLimitError("a number is written too wide")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as Hugging Face's templates expect: no HTML escapes."""
    if indent is not None and indent > _MAX_WIDTH:
        raise TemplateLimitError("an indentation is too wide")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)
