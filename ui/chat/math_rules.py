"""A markdown-it plug-in that keeps LaTeX as it was written: "math" tokens, raw text."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

_INLINE = re.compile(
    r"\$\$(?=\S)[^$]+?\$\$"
    r"|\\\(.+?\\\)"
    r"|\\\[.+?\\\]"
    # A price is no formula: no blank inside the dollars, no digit after them.
    r"|\$(?=[^\s$])[^$\n]*?(?<=[^\s\\$])\$(?!\d)",
    re.DOTALL,
)
_BLOCK_ENDS = {"$$": "$$", "\\[": "\\]"}


def use_math(md: MarkdownIt) -> None:
    """Teach md the tokens "math" (inline) and "math_block"."""
    md.inline.ruler.before("escape", "math", _inline_math)
    md.inline.add_terminator_char("$")
    md.block.ruler.before(
        "fence", "math_block", _block_math, {"alt": ["paragraph", "blockquote", "list"]}
    )


def _inline_math(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "$\\":
        return False
    found = _INLINE.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        state.push("math", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _block_math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    close = None if state.is_code_block(start) else _BLOCK_ENDS.get(_line(state, start))
    if close is None:
        return False
    if not silent:
        stop = _end_line(state, start, end, close)
        token = state.push("math_block", "", 0)
        token.content = state.getLines(start, stop, state.blkIndent, False)
        token.map = [start, stop]
        state.line = stop
    return True


def _end_line(state: StateBlock, start: int, end: int, close: str) -> int:
    # An unclosed formula ends at a blank line, so that a stray "$$" does not take the whole reply.
    for line in range(start + 1, end):
        if state.isEmpty(line) or state.sCount[line] < state.blkIndent:
            return line
        if _line(state, line).endswith(close):
            return line + 1
    return end


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].strip()
