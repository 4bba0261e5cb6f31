"""Token ids equal llama.cpp's, and text comes back from them."""

from __future__ import annotations

import contextlib
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import EngineError, ModelFileError, TokenizerError, UnsupportedModelError
from engine.gguf_file import GGUFFile
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.engine.text import vocabularies
from tests.reference import REFERENCE, needs_reference

VOCABULARIES = ("gemma-4", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2")
TINY = {"gpt-2": "llama-yarn", "smollm": "llama", "qwen2": "qwen2"}


@cache
def vocabulary(name: str) -> Tokenizer:
    path = REFERENCE / "vocab" / f"ggml-vocab-{name}.gguf"
    return Tokenizer.from_gguf(GGUFFile.open(path))


def cases(name: str) -> list[tuple[str, list[int]]]:
    base = f"ggml-vocab-{name}.gguf"
    texts = (REFERENCE / "vocab" / f"{base}.inp").read_bytes().decode()
    lines = (REFERENCE / "vocab" / f"{base}.out").read_text(encoding="utf-8").split("\n")
    inputs = texts.split("\n__ggml_vocab_test__\n")
    return [(text, [int(i) for i in line.split()]) for text, line in zip(inputs, lines)]  # noqa: B905


@pytest.fixture
def byte_level(tmp_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(vocabularies.byte_level(tmp_path / "v.gguf"))


@pytest.fixture
def sentencepiece(tmp_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(vocabularies.sentencepiece(tmp_path / "v.gguf"))


@needs_reference
@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_of_real_vocabularies_equal_llama_cpp(name: str):
    tokenizer = vocabulary(name)
    assert len(cases(name)) > 40
    for text, ids in cases(name):
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids) == text


@needs_reference
@pytest.mark.parametrize("pre", TINY)
def test_ids_of_tiny_vocabularies_equal_llama_cpp(pre: str):
    file = GGUFFile.open(REFERENCE / "models" / f"{TINY[pre]}.gguf")
    if file.get("tokenizer.ggml.pre", "") != pre:
        pytest.skip(f"{TINY[pre]} has another pre-tokenizer")
    tokenizer = Tokenizer.from_gguf(file)
    expected: dict[str, Any] = json.loads((REFERENCE / "models" / "tokenizer.json").read_text())
    for case in expected[pre]:
        assert tokenizer.encode(case["text"]) == case["ids"]
        assert tokenizer.encode(case["text"], parse_special=False) == case["ids_no_special"]


def assert_equals_reference(tokenizer: Tokenizer, model: str) -> None:
    expected = json.loads((REFERENCE / "nll.json").read_text())[model]
    for name, values in expected.items():
        text = (REFERENCE / "text" / name).read_text(encoding="utf-8")
        ids = tokenizer.encode(text, add_special=True)
        assert ids[: len(values["token_ids"])] == values["token_ids"], name
        assert tokenizer.decode(tokenizer.encode(text)) == text


@needs_reference
def test_smollm2_ids_of_whole_texts_equal_llama_cpp(smollm2_path: Path):
    tokenizer = Tokenizer.from_gguf(GGUFFile.open(smollm2_path))
    assert_equals_reference(tokenizer, "SmolLM2-135M-Instruct.Q4_1")


@needs_reference
def test_gemma3_ids_of_whole_texts_equal_llama_cpp(gemma3_path: Path):
    tokenizer = Tokenizer.from_gguf(GGUFFile.open(gemma3_path))
    assert_equals_reference(tokenizer, "gemma-3-270m-q4_k_m")


@needs_reference
@pytest.mark.parametrize("name", VOCABULARIES)
def test_any_text_comes_back_from_its_ids(name: str):
    tokenizer = vocabulary(name)
    for text in (
        "",
        " ",
        "  two  spaces ",
        "\r\n\t mixed \n\n\n lines \n",
        "naïve café \u0301 Zürich",
        "漢字かな交じり文、です。",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600 \x00\x7f",
        "x" * 500 + " " * 100 + "1234567890" * 20,
    ):
        assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


@needs_reference
@given(st.text())
def test_random_text_comes_back_from_sentencepiece_ids(text: str):
    tokenizer = vocabulary("llama-spm")
    clean = text.encode("utf-8", "replace").decode()
    assert tokenizer.decode(tokenizer.encode(clean, parse_special=False)) == clean.replace(
        "\u2581", " "
    )


@needs_reference
def test_end_of_generation_follows_the_vocabulary():
    texts = {
        "llama-bpe": {"<|eot_id|>", "<|end_of_text|>"},
        "qwen2": {"<|endoftext|>", "<|im_end|>"},
        "gemma-4": {"<eos>", "<turn|>", "<|tool_response>"},
        "phi-3": {"<|end|>", "<|endoftext|>"},
    }
    for name, expected in texts.items():
        tokenizer = vocabulary(name)
        assert {tokenizer.token_bytes(i).decode() for i in tokenizer.eog_ids} == expected


def test_merges_run_best_first(byte_level: Tokenizer):
    assert [byte_level.token_bytes(i) for i in byte_level.encode("hello hello hexx")] == [
        b"hello",
        b" hello",
        b" ",
        b"he",
        b"x",
        b"x",
    ]


def test_control_tokens_are_parsed_only_when_asked(byte_level: Tokenizer):
    text = "<|im_start|>hello<|im_end|>"
    ids = byte_level.encode(text)
    assert len(ids) == 3
    assert byte_level.decode(ids) == text
    assert byte_level.decode(ids, skip_special=True) == "hello"
    plain = byte_level.encode(text, parse_special=False)
    assert not any(map(byte_level.is_special, plain))
    assert byte_level.decode(plain) == text


def test_the_longest_special_token_wins(tmp_path: Path):
    file = vocabularies.byte_level(tmp_path / "v.gguf")
    tokens = [*file.require("tokenizer.ggml.tokens", list), "<|im", "<|im_start|>x"]
    kinds = [*file.require("tokenizer.ggml.token_type", list), 3, 4]
    changed = vocabularies.byte_level(tmp_path / "w.gguf", tokens=tokens, token_type=kinds)
    tokenizer = Tokenizer.from_gguf(changed)
    ids = tokenizer.encode("<|im_start|>x<|im_start|><|im")
    assert [tokenizer.token_bytes(i) for i in ids] == [b"<|im_start|>x", b"<|im_start|>", b"<|im"]
    assert ids[0] in tokenizer.encode("<|im_start|>x", parse_special=False)


def test_bos_and_eos_are_added_where_the_file_says_so(tmp_path: Path):
    file = vocabularies.byte_level(tmp_path / "v.gguf", add_bos_token=True, add_eos_token=True)
    tokenizer = Tokenizer.from_gguf(file)
    ids = tokenizer.encode("he", add_special=True)
    assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
    assert len(tokenizer.encode("he")) == 1
    assert tokenizer.encode("", add_special=True) == [tokenizer.bos_id, tokenizer.eos_id]


def test_sentencepiece_adds_a_space_takes_it_back_and_falls_back_to_bytes(
    sentencepiece: Tokenizer,
):
    ids = sentencepiece.encode("hello\u00e9", add_special=True)
    assert [sentencepiece.token_bytes(i) for i in ids] == [b"<s>", b" hello", b"\xc3", b"\xa9"]
    assert sentencepiece.decode(ids[1:]) == "hello\u00e9"
    assert sentencepiece.adds_bos


def test_space_prefix_follows_each_special_token(sentencepiece: Tokenizer):
    ids = sentencepiece.encode("hello<mark>hello")
    assert [sentencepiece.token_bytes(i) for i in ids] == [b" hello", b"<mark>", b" hello"]


def test_lone_surrogates_are_replaced(byte_level: Tokenizer, sentencepiece: Tokenizer):
    for tokenizer in (byte_level, sentencepiece):
        assert tokenizer.decode(tokenizer.encode("a\ud83d b")) == "a\ufffd b"


def test_html_strike_through_ends_no_reply(tmp_path: Path):
    file = vocabularies.sentencepiece(tmp_path / "v.gguf")
    kinds = file.require("tokenizer.ggml.token_type", list).copy()
    kinds[2] = vocabularies.USER_DEFINED
    changed = vocabularies.sentencepiece(tmp_path / "w.gguf", token_type=kinds, eos_token_id=1)
    assert Tokenizer.from_gguf(changed).eog_ids == {1}


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"model": "klingon"}, UnsupportedModelError, "klingon"),
        ({"pre": "klingon"}, UnsupportedModelError, "klingon"),
        ({"merges": ["q zz"]}, TokenizerError, ""),
        ({"merges": ["noblank"]}, TokenizerError, ""),
        ({"merges": [1, 2]}, ModelFileError, "merges"),
        ({"model": "llama"}, TokenizerError, "scores"),
        ({"token_type": [1, 1]}, TokenizerError, "token_type"),
        ({"tokens": [1, 2, 3]}, ModelFileError, "tokens"),
    ],
)
def test_unusable_vocabularies_are_typed_errors(
    changes: dict[str, object], error: type[Exception], named: str, tmp_path: Path
):
    with pytest.raises(error) as caught:
        Tokenizer.from_gguf(vocabularies.byte_level(tmp_path / "v.gguf", **changes))
    assert named in caught.value.detail


def test_a_missing_vocabulary_is_a_typed_error(tmp_path: Path):
    with pytest.raises(ModelFileError):
        Tokenizer.from_gguf(vocabularies.write(tmp_path / "v.gguf", {}))


def test_special_ids_out_of_range_are_ignored(tmp_path: Path):
    file = vocabularies.byte_level(tmp_path / "v.gguf", eos_token_id=10**9, add_eos_token=True)
    tokenizer = Tokenizer.from_gguf(file)
    assert tokenizer.eos_id is None
    assert not tokenizer.adds_eos


@pytest.mark.parametrize("write", [vocabularies.byte_level, vocabularies.sentencepiece])
def test_random_damage_is_a_typed_error_or_harmless(write: Any, tmp_path: Path):
    path = tmp_path / "v.gguf"
    write(path, **{"tokenizer.chat_template": "{{ messages[0].content }}"})
    data, rng = path.read_bytes(), random.Random(9)
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 8)):
            changed[rng.randrange(len(data))] ^= rng.randint(1, 255)
        path.write_bytes(changed)
        with contextlib.suppress(EngineError):
            file = GGUFFile.open(path)
            tokenizer = Tokenizer.from_gguf(file)
            ChatTemplate.from_gguf(file)
            tokenizer.decode(tokenizer.encode("hello <s>w\u00f6rld<|im_end|>", add_special=True))
            assert all(tokenizer.token_bytes(i) is not None for i in range(tokenizer.vocab_size))
