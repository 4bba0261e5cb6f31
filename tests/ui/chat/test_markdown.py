"""Markdown to elements, at once and piece by piece."""

from __future__ import annotations

import random

import pytest

from ui.chat.elements import Code, Paragraph, Rule, Span, Style, Table
from ui.chat.markdown import parse
from ui.chat.markdown_stream import MarkdownStream
from ui.chat.user_text import fenced, parse_user

RICH = """# A heading

Some *words*, **bold _and more_**, `code`, ~~gone~~ and [a link](https://example.org/a).
Next line with $a_1 + b$ and \\(x^2\\).

1. First

   ```python
   def f(x):
       return x
   ```

2. Second
   - [ ] open
   - [x] done

para
***bold***

2

2. again

> quoted
> > deeper

| a | b |
|:--|--:|
| 1 | `2` |

$$
x = 1
- y
$$

```
no language

  - still code
```
#hash

---
* * *
***em***

- a

    indented

<b>html</b> <img src="http://x/y.png">
![alt](http://x/y.png) https://example.org/x.
"""


def test_whole_text_becomes_flat_elements() -> None:
    elements = parse("## Hi\n\n- a\n  1. b\n\n> q\n\n---\n")

    assert elements == [
        Paragraph((Span("Hi"),), level=2),
        Paragraph((Span("a"),), indent=1, marker="•", is_tight=True),
        Paragraph((Span("b"),), indent=2, marker="1.", is_tight=True),
        Paragraph((Span("q"),), quote=1),
        Rule(),
    ]


def test_inline_styles_combine() -> None:
    (paragraph,) = parse("**bold *both*** `c` ~~s~~")

    assert isinstance(paragraph, Paragraph)
    assert paragraph.spans == (
        Span("bold ", Style.BOLD),
        Span("both", Style.BOLD | Style.ITALIC),
        Span(" "),
        Span("c", Style.CODE),
        Span(" "),
        Span("s", Style.STRIKE),
    )


def test_code_in_a_list_keeps_its_indent_and_the_count_goes_on() -> None:
    elements = parse("1. a\n   ```sh\n   ls\n   ```\n2. b")

    assert elements[1] == Code("ls", "sh", indent=1)
    assert isinstance(elements[2], Paragraph)
    assert elements[2].marker == "2."


def test_table_keeps_alignment() -> None:
    (table,) = parse("|a|b|\n|:-:|--:|\n|1|2|")

    assert isinstance(table, Table)
    assert table.aligns == ("center", "right")
    assert table.rows[1] == ((Span("1"),), (Span("2"),))


def test_html_stays_text() -> None:
    (paragraph,) = parse("<script>alert(1)</script>")

    assert isinstance(paragraph, Paragraph)
    assert paragraph.text == "<script>alert(1)</script>"


@pytest.mark.parametrize("href", ["javascript:alert(1)", "file:///etc/passwd", "/local"])
def test_only_web_addresses_become_links(href: str) -> None:
    (paragraph,) = parse(f"[name]({href})")

    assert isinstance(paragraph, Paragraph)
    assert all(not span.href for span in paragraph.spans)


def test_picture_is_a_name_with_a_link() -> None:
    (paragraph,) = parse("![alt](https://example.org/p.png)")

    assert isinstance(paragraph, Paragraph)
    assert paragraph.spans == (Span("alt", href="https://example.org/p.png"),)


def test_bare_address_is_a_link_without_the_full_stop() -> None:
    (paragraph,) = parse("See https://example.org/x.")

    assert isinstance(paragraph, Paragraph)
    assert paragraph.spans[1] == Span("https://example.org/x", href="https://example.org/x")


def test_formula_is_kept_as_written() -> None:
    (paragraph,) = parse(r"If $a_1 * b_2$ and \(c_1 * d\), it costs $5 or $6.")

    assert isinstance(paragraph, Paragraph)
    formulas = [span.text for span in paragraph.spans if span.style & Style.MATH]
    assert formulas == ["$a_1 * b_2$", r"\(c_1 * d\)"]


@pytest.mark.parametrize("seed", range(30))
def test_stream_equals_whole_after_every_piece(seed: int) -> None:
    pieces = random.Random(seed)
    stream, end = MarkdownStream(), 0
    while end < len(RICH):
        start, end = end, end + pieces.randint(1, 9)
        stream.append(RICH[start:end])
        assert stream.elements == parse(RICH[:end]), RICH[:end]


def test_stream_equals_whole_for_every_character() -> None:
    stream = MarkdownStream()
    for end, character in enumerate(RICH, 1):
        stream.append(character)
        assert stream.elements == parse(RICH[:end]), RICH[:end]


def test_finished_blocks_keep_their_objects() -> None:
    stream = MarkdownStream("First.\n\nSecond.\n\nThird")
    first = stream.elements[0]

    stream.append(" grows.")

    assert stream.elements[0] is first


def test_what_a_person_types_is_not_interpreted() -> None:
    elements = parse_user("# no *heading*\n\n```a.py\nx = 1\n```\nafter")

    assert elements == [
        Paragraph((Span("# no *heading*"),)),
        Code("x = 1", "a.py"),
        Paragraph((Span("after"),)),
    ]


def test_attached_file_survives_its_own_fences() -> None:
    content = "text\n```py\ncode\n```\nend"

    (code,) = parse_user(fenced("notes.md", content))

    assert code == Code(content, "notes.md")
