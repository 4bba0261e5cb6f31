"""Text arrives in whole characters, and all of it arrives."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.detokenizer import StreamingDetokenizer
from engine.text.tokenizer import Tokenizer
from tests.engine.text import vocabularies

Pieces = list[str]


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "v.gguf"
    return Tokenizer.from_gguf(vocabularies.byte_level(path))


def streamed(tokenizer: Tokenizer, ids: list[int], *, is_start: bool = True) -> Pieces:
    detokenizer = StreamingDetokenizer(tokenizer, is_start=is_start)
    return [*(detokenizer.push(i) for i in ids), detokenizer.flush()]


@given(text=st.text())
def test_pieces_join_to_the_whole_text(byte_level: Tokenizer, text: str):
    ids = byte_level.encode(text, parse_special=False)
    pieces = streamed(byte_level, ids)
    assert "".join(pieces) == byte_level.decode(ids)


def test_half_a_character_is_held_back(byte_level: Tokenizer):
    pieces = streamed(byte_level, byte_level.encode("\U0001f600"))
    assert pieces == ["", "", "", "\U0001f600", ""]


def test_half_a_character_at_the_end_becomes_a_replacement(byte_level: Tokenizer):
    ids = byte_level.encode("\u20ac")[:2]
    assert streamed(byte_level, ids) == ["", "", "\ufffd"]


def test_bytes_that_begin_no_character_become_a_replacement(byte_level: Tokenizer):
    lone = byte_level.encode("\u00e9")[1]
    hello = byte_level.encode("hello")[0]
    assert "".join(streamed(byte_level, [lone, hello])) == "\ufffdhello"


def test_control_tokens_have_no_text(byte_level: Tokenizer):
    ids = byte_level.encode("<|im_start|>hello<|im_end|>")
    assert streamed(byte_level, ids) == ["", "hello", "", ""]


def test_sentencepiece_loses_its_first_space_only_where_a_reply_begins(tmp_path: Path):
    tokenizer = Tokenizer.from_gguf(vocabularies.sentencepiece(tmp_path / "v.gguf"))
    ids = tokenizer.encode("hello hello")
    assert streamed(tokenizer, ids) == ["hello", " hello", ""]
    assert streamed(tokenizer, [1, *ids]) == ["", "hello", " hello", ""]
    assert streamed(tokenizer, ids, is_start=False) == [" hello", " hello", ""]
