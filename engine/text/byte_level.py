"""Byte-level BPE vocabularies, run by the `tokenizers` library."""

from __future__ import annotations

from functools import cache

from engine.errors import TokenizerError
from engine.text.pre_tokenizers import PreTokenizer
from engine.text.vocabulary import Vocabulary


class ByteLevel:
    """Encodes text by the merges of a byte-level vocabulary."""

    def __init__(self, vocabulary: Vocabulary, merges: list[str], rule: PreTokenizer) -> None:
        """Build the library's tokenizer. merges: "left right" each, best first.

        Raises: TokenizerError when merges and vocabulary contradict each other.
        """
        # Only here: other vocabularies do without the library and its megabytes.
        from tokenizers import Regex, Tokenizer, pre_tokenizers
        from tokenizers.models import BPE

        pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
        try:
            model = BPE(vocabulary.ids, pairs, ignore_merges=rule.ignores_merges)
        except Exception as error:  # the library raises nothing narrower
            raise TokenizerError(
                "The vocabulary in the model file contradicts itself.", detail=str(error)
            ) from error
        self._library = Tokenizer(model)
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
        bytes_as_characters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._library.pre_tokenizer = pre_tokenizers.Sequence([*splits, bytes_as_characters])

    def encode(self, text: str) -> list[int]:
        """Return the token ids of text without special tokens."""
        return self._library.encode(text, add_special_tokens=False).ids


def token_to_bytes(text: str) -> bytes:
    """Return the bytes a token of a byte-level vocabulary stands for."""
    table = _byte_of_character()
    return b"".join(
        bytes((table[character],)) if character in table else character.encode()
        for character in text
    )


@cache
def _byte_of_character() -> dict[str, int]:
    """Return GPT-2's alphabet. Source: openai/gpt-2, encoder.py, bytes_to_unicode."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + number): byte for number, byte in enumerate(others)}
