"""Tiny vocabularies in GGUF files, written for a test."""

from __future__ import annotations

from pathlib import Path

import gguf

from engine.gguf_file import GGUFFile

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
ENDOFTEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"


def write(path: Path, values: dict[str, object]) -> GGUFFile:
    """Write a file that holds a vocabulary and nothing else."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in values.items():
        _add(writer, key if "." in key else f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return GGUFFile.open(path)


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def byte_level(path: Path, **changes: object) -> GGUFFile:
    """All bytes, a few merges, three control tokens."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = [chr(b) for b in printable] + [chr(0x100 + n) for n in range(256 - len(printable))]
    merges = ["h e", "l l", "he ll", "hell o", "\u0120 hello"]
    tokens = alphabet + [m.replace(" ", "") for m in merges] + [ENDOFTEXT, IM_START, IM_END]
    values: dict[str, object] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [NORMAL] * (len(tokens) - 3) + [CONTROL] * 3,
        "merges": merges,
        "bos_token_id": len(tokens) - 3,
        "eos_token_id": len(tokens) - 1,
    }
    return write(path, values | changes)


def sentencepiece(path: Path, **changes: object) -> GGUFFile:
    """Unknown, BOS, EOS, all bytes, and a few pieces with scores."""
    pieces = ["\u2581", "h", "e", "l", "o", "he", "ll", "hell", "hello", "\u2581hello", "<mark>"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(pieces) - 1), USER_DEFINED]
    values: dict[str, object] = {
        "model": "llama",
        "tokens": tokens,
        "token_type": kinds,
        "scores": [-float(n) for n in range(len(tokens))],
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return write(path, values | changes)
