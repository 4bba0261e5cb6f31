"""Reasoning and answer are told apart, whatever the pieces they arrive in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.events import Channel
from engine.text.chat_template import ChatTemplate
from engine.text.output_parser import OutputParser, parse_reply

PLAIN = ChatTemplate("{{ messages[0].content }}")
OPENED = ChatTemplate("{{ messages[0].content }}<a><think>\n")
CLOSED = ChatTemplate("{{ messages[0].content }}<a><think>\n\n</think>\n\n")
BRACKETS = ChatTemplate("{{ messages[0].content }}{# [THINK] #}")
COMMAND = ChatTemplate("{{ messages[0].content }}{# <|START_THINKING|> #}")
HARMONY = ChatTemplate("{{ messages[0].content }}{# <|channel|> <|message|> #}<|start|>assistant")


def split(template: ChatTemplate, pieces: list[str]) -> tuple[str, str]:
    parser = OutputParser(template)
    shown = [found for piece in pieces for found in parser.push(piece)] + parser.flush()
    content, reasoning = (
        "".join(text for channel, text in shown if channel is wanted)
        for wanted in (Channel.CONTENT, Channel.REASONING)
    )
    return content, reasoning


CASES = [
    (PLAIN, "hello <b>", ("hello <b>", "")),
    (PLAIN, "<think>\nhm</think>\n\nyes", ("yes", "hm")),
    (PLAIN, "\n<think>hm</think>yes", ("yes", "hm")),
    (PLAIN, "say <think> aloud</think>", ("say <think> aloud</think>", "")),
    (PLAIN, "<think>never closed", ("", "never closed")),
    (PLAIN, "<think>a</think>b<think>c</think>", ("b<think>c</think>", "a")),
    (PLAIN, "<thin", ("<thin", "")),
    (PLAIN, "  ", ("  ", "")),
    (PLAIN, "", ("", "")),
    (OPENED, "hm</think>\n\nyes", ("yes", "hm")),
    (OPENED, "hm </thi nk> still</think>yes", ("yes", "hm </thi nk> still")),
    (CLOSED, "yes", ("yes", "")),
    (BRACKETS, "[THINK]hm[/THINK]yes", ("yes", "hm")),
    (
        COMMAND,
        "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>yes<|END_RESPONSE|>",
        ("yes", "hm"),
    ),
    (COMMAND, "<|START_RESPONSE|>yes<|END_RESPONSE|>", ("yes", "")),
    (
        HARMONY,
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
        "<|channel|>final<|message|>yes <b>",
        ("yes <b>", "hm"),
    ),
    (HARMONY, "<|channel|>final<|message|>yes", ("yes", "")),
]


@pytest.mark.parametrize(("template", "text", "expected"), CASES)
def test_whole_reply_splits(template: ChatTemplate, text: str, expected: tuple[str, str]):
    assert split(template, [text]) == expected


@pytest.mark.parametrize(("template", "text", "expected"), CASES)
def test_character_by_character_splits_the_same(
    template: ChatTemplate, text: str, expected: tuple[str, str]
):
    assert split(template, list(text)) == expected


@given(
    pieces=st.lists(
        st.sampled_from(["<think>", "</think>", "<", "think>", "</", "a", " ", "\n", ">"]),
        max_size=8,
    )
)
def test_pieces_never_change_the_result(pieces: list[str]):
    assert split(PLAIN, pieces) == split(PLAIN, ["".join(pieces)])


def test_text_that_is_surely_no_tag_is_shown_at_once():
    parser = OutputParser(PLAIN)
    assert parser.push("<thi") == []
    assert parser.push("s is text") == [(Channel.CONTENT, "<this is text")]
    assert parser.push(" <") == [(Channel.CONTENT, " <")]


def test_reasoning_is_shown_while_it_grows():
    parser = OutputParser(PLAIN)
    assert parser.push("<think>") == []
    assert parser.push("so ") == [(Channel.REASONING, "so ")]
    assert parser.push("far</") == [(Channel.REASONING, "far")]
    assert parser.push("think>\n") == []
    assert parser.push("yes") == [(Channel.CONTENT, "yes")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nhm\n</think>\n\nyes", ("yes", "hm")),
        ("hm\n</think>\n\nyes", ("yes", "hm")),
        ("yes", ("yes", "")),
    ],
)
def test_parse_reply_splits_a_whole_text(text: str, expected: tuple[str, str]):
    assert parse_reply(text) == expected
