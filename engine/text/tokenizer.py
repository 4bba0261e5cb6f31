"""Text to token ids and back, by the vocabulary of a model file.

Knows nothing of chat templates or models. Token ids equal llama.cpp's for the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from engine.errors import TokenizerError, UnsupportedModelError
from engine.gguf_file import GGUFFile
from engine.text.byte_level import ByteLevel, token_to_bytes
from engine.text.merging import SPACE, Merger, merge_list_rank, score_rank
from engine.text.pre_tokenizers import pre_tokenizer
from engine.text.vocabulary import TokenKind, Vocabulary, read_strings

_ASCII_SPACE = " \t\n\v\f\r"
_KEPT_SPACE_AFTER = frozenset(("<unk>", "<s>", "<|endoftext|>"))


class _Encoder(Protocol):
    """Turns text that holds no special token into ids."""

    def encode(self, text: str) -> list[int]: ...


class Tokenizer:
    """The tokenizer of one model.

    adds_bos, adds_eos: what encode(add_special=True) puts around the text.
    adds_space_prefix: text is encoded as if a space came before it, which decoding takes away.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        encoder: _Encoder,
        *,
        is_byte_level: bool,
        adds_bos: bool = False,
        adds_eos: bool = False,
        adds_space_prefix: bool = False,
        strips_after_special: bool = False,
    ) -> None:
        """Put the parts together; see from_gguf()."""
        self._vocabulary = vocabulary
        self._encoder = encoder
        self._is_byte_level = is_byte_level
        self.adds_bos = adds_bos and vocabulary.bos_id is not None
        self.adds_eos = adds_eos and vocabulary.eos_id is not None
        self.adds_space_prefix = adds_space_prefix
        self._strips_after_special = strips_after_special
        self._special_ranks: dict[str, list[int]] = {}
        for rank, token_id in enumerate(vocabulary.special_ids):
            self._special_ranks.setdefault(vocabulary.texts[token_id][0], []).append(rank)

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> Tokenizer:
        """Build the tokenizer of a model file.

        Raises: ModelFileError, TokenizerError, UnsupportedModelError naming the kind.
        """
        model = file.require("tokenizer.ggml.model", str)
        if model == "gpt2":
            return _byte_level_tokenizer(file)
        if model == "llama":
            return _sentencepiece_tokenizer(file)
        if model == "gemma4":
            return _merge_list_tokenizer(file)
        raise UnsupportedModelError(
            "The model's kind of vocabulary is not supported.",
            detail=f"tokenizer.ggml.model is {model[:80]!r}",
        )

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary."""
        return len(self._vocabulary.texts)

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text."""
        return self._vocabulary.bos_id

    @property
    def eos_id(self) -> int | None:
        """The token that ends a text."""
        return self._vocabulary.eos_id

    @property
    def eog_ids(self) -> frozenset[int]:
        """Tokens that end a reply: of text, of turn, of message."""
        return self._vocabulary.eog_ids

    def encode(
        self, text: str, *, add_special: bool = False, parse_special: bool = True
    ) -> list[int]:
        """Return the token ids of text.

        add_special: put BOS and EOS around it where the model wants them.
        parse_special: take the text of control tokens for the tokens themselves.
        """
        token_ids: list[int] = []
        if add_special and self.adds_bos and self.bos_id is not None:
            token_ids.append(self.bos_id)
        is_after_special = True
        for fragment in self._partition(_without_surrogates(text), parse_special):
            if isinstance(fragment, int):
                token_ids.append(fragment)
            else:
                has_prefix = is_after_special and self.adds_space_prefix
                token_ids += self._encoder.encode(" " + fragment if has_prefix else fragment)
            is_after_special = isinstance(fragment, int)
        if add_special and self.adds_eos and self.eos_id is not None:
            token_ids.append(self.eos_id)
        return token_ids

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = False) -> str:
        """Return the text of token ids; bytes that are no UTF-8 become U+FFFD."""
        shown = [i for i in token_ids if not (skip_special and self.is_special(i))]
        data = b"".join(map(self.token_bytes, shown))
        if self.adds_space_prefix and shown and not self.is_special(shown[0]):
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes a token stands for; control tokens give their own text."""
        text, kind = self._vocabulary.texts[token_id], self._vocabulary.kinds[token_id]
        if kind == TokenKind.BYTE:
            return _spelled_byte(text)
        if kind != TokenKind.NORMAL:
            return text.encode()
        if self._is_byte_level:
            return token_to_bytes(text)
        return text.replace(SPACE, " ").encode()

    def token_id(self, text: str) -> int | None:
        """Return the id of the token that has exactly this text in the vocabulary."""
        return self._vocabulary.ids.get(text)

    def is_special(self, token_id: int) -> bool:
        """Whether a token is control or unknown, so that it is no part of visible text."""
        return self._vocabulary.kinds[token_id] in (TokenKind.CONTROL, TokenKind.UNKNOWN)

    def _partition(self, text: str, parse_special: bool) -> list[str | int]:
        """Cut text at special tokens, the longest ones first over the whole text."""
        fragments: list[str | int] = [text] if text else []
        for token_id in self._candidates(text):
            special = self._vocabulary.texts[token_id]
            if special in text and (parse_special or not self.is_special(token_id)):
                fragments = list(self._cut(fragments, token_id, special))
        return fragments

    def _candidates(self, text: str) -> list[int]:
        """Return the special tokens whose first character occurs, longest text first."""
        ranks = [rank for first in set(text) for rank in self._special_ranks.get(first, ())]
        return [self._vocabulary.special_ids[rank] for rank in sorted(ranks)]

    def _cut(self, fragments: list[str | int], token_id: int, special: str) -> Iterator[str | int]:
        strips = self._strips_after_special and special not in _KEPT_SPACE_AFTER
        for fragment in fragments:
            if isinstance(fragment, int):
                yield fragment
                continue
            for number, rest in enumerate(fragment.split(special)):
                if number:
                    yield token_id
                stripped = rest.lstrip(_ASCII_SPACE) if number and strips else rest
                if stripped:
                    yield stripped


class _SpaceEscaping:
    """Replaces spaces as SentencePiece does, then merges."""

    def __init__(self, merger: Merger) -> None:
        self._merger = merger

    def encode(self, text: str) -> list[int]:
        return self._merger.encode(text.replace(" ", SPACE))


class _LineByLine:
    """Merges within lines only; a run of line breaks that is a token is taken whole."""

    def __init__(self, merger: Merger, ids: dict[str, int]) -> None:
        self._merger = merger
        self._ids = ids

    def encode(self, text: str) -> list[int]:
        token_ids: list[int] = []
        for run in re.findall(r"[^\n]+|\n+", text.replace(" ", SPACE)):
            is_whole = run[0] == "\n" and run in self._ids
            token_ids += [self._ids[run]] if is_whole else self._merger.encode(run)
        return token_ids


def _byte_level_tokenizer(file: GGUFFile) -> Tokenizer:
    name = file.require("tokenizer.ggml.pre", str) if "tokenizer.ggml.pre" in file.metadata else ""
    rule = pre_tokenizer(name)
    vocabulary = Vocabulary.from_gguf(file, default_bos=None)
    encoder = ByteLevel(vocabulary, read_strings(file, "tokenizer.ggml.merges"), rule)
    return Tokenizer(
        vocabulary,
        encoder,
        is_byte_level=True,
        adds_bos=_flag(file, "add_bos_token", default=rule.adds_bos),
        adds_eos=_flag(file, "add_eos_token", default=False),
        adds_space_prefix=_flag(file, "add_space_prefix", default=False),
        strips_after_special=_is_phi3(file),
    )


def _sentencepiece_tokenizer(file: GGUFFile) -> Tokenizer:
    vocabulary = Vocabulary.from_gguf(file, default_bos=1)
    if not vocabulary.scores:
        raise TokenizerError("The vocabulary has no scores.", detail="tokenizer.ggml.scores")
    return Tokenizer(
        vocabulary,
        _SpaceEscaping(Merger(vocabulary, score_rank(vocabulary))),
        is_byte_level=False,
        adds_bos=_flag(file, "add_bos_token", default=True),
        adds_eos=_flag(file, "add_eos_token", default=False),
        adds_space_prefix=_flag(file, "add_space_prefix", default=True),
        strips_after_special=_is_phi3(file),
    )


def _merge_list_tokenizer(file: GGUFFile) -> Tokenizer:
    vocabulary = Vocabulary.from_gguf(file, default_bos=None)
    merger = Merger(vocabulary, merge_list_rank(read_strings(file, "tokenizer.ggml.merges")))
    # NOTE: early files say add_bos_token = false, but the models fail without BOS.
    return Tokenizer(
        vocabulary, _LineByLine(merger, vocabulary.ids), is_byte_level=False, adds_bos=True
    )


def _flag(file: GGUFFile, name: str, *, default: bool) -> bool:
    value = file.get(f"tokenizer.ggml.{name}", default)
    return value if isinstance(value, bool) else default


def _is_phi3(file: GGUFFile) -> bool:
    """Whether special tokens swallow the white space after them: no key of the file says so."""
    name = str(file.get("general.name", "")).lower()
    return "phi-3" in name or "phi3" in name


def _spelled_byte(text: str) -> bytes:
    try:
        return bytes((int(text[3:5], 16),))
    except ValueError:
        return text.encode()


def _without_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which no encoding accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
