"""The token list of a model file: texts, kinds, scores, and which tokens are special.

Knows nothing of how text is cut into tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from enum import IntEnum

from engine.errors import ModelFileError, TokenizerError
from engine.gguf_file import GGUFFile

# Texts that no prose contains: they end a turn whatever kind the file gives them.
_END_OF_TURN = frozenset(
    (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|calls|>",
        "<|flush|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<turn|>",
        "<|tool_response>",
        "<｜end▁of▁sentence｜>",
        "<|END_OF_TURN_TOKEN|>",
        "<|fim_pad|>",
        "<|repo_name|>",
        "<|file_sep|>",
        "[e~[",
    )
)
# Texts that are also HTML or plain words: only where the file calls them control tokens.
_END_OF_TURN_IF_CONTROL = frozenset(
    (
        "</s>",
        "<eos>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
    )
)
# Control tokens that the output parser must see as text.
_MARKERS = frozenset(
    (
        "<think>",
        "</think>",
        "[THINK]",
        "[/THINK]",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "<seed:think>",
        "</seed:think>",
        "<|channel|>",
        "<|message|>",
        "<|start|>",
        "<|constrain|>",
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|channel>",
        "<channel|>",
    )
)


class TokenKind(IntEnum):
    """What a token is. Source: GGUF, ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All tokens of a model. texts, kinds, scores: one per id; scores are empty when absent.

    ids: text -> id. special_ids: tokens that are looked for in text before anything else, longest
    text first.
    """

    texts: list[str]
    kinds: Sequence[float]
    scores: Sequence[float]
    ids: dict[str, int]
    special_ids: tuple[int, ...]
    bos_id: int | None
    eos_id: int | None
    eog_ids: frozenset[int]

    @classmethod
    def from_gguf(cls, file: GGUFFile, *, default_bos: int | None) -> Vocabulary:
        """Read the token list. default_bos: what holds where the file names none.

        Raises: ModelFileError when the list is missing, TokenizerError when it contradicts itself.
        """
        texts = read_strings(file, "tokenizer.ggml.tokens")
        scores = array("f", _numbers(file, "tokenizer.ggml.scores", len(texts)))
        kinds = array("f", _numbers(file, "tokenizer.ggml.token_type", len(texts)))
        kinds = kinds or array("f", [TokenKind.NORMAL]) * len(texts)
        ids = dict(zip(reversed(texts), range(len(texts) - 1, -1, -1), strict=True))
        named = {key: _token_id(file, key, len(texts)) for key in ("bos", "eos", "eot", "eom")}
        eog_ids = _end_of_generation(ids, kinds, named)
        _mark_kinds(ids, kinds, eog_ids)
        bos_id = named["bos"] if named["bos"] is not None else default_bos
        return cls(
            texts, kinds, scores, ids, _special_ids(texts, kinds), bos_id, named["eos"], eog_ids
        )


def read_strings(file: GGUFFile, key: str) -> list[str]:
    """Return a list of texts from the metadata.

    Raises: ModelFileError when it is missing, empty or of another kind.
    """
    values = file.require(key, list)
    if not values or not isinstance(values[0], str):
        raise ModelFileError("The vocabulary in the model file is damaged.", detail=key)
    return values


def _numbers(file: GGUFFile, key: str, count: int) -> list[float]:
    values = file.get(key, [])
    if not values:
        return []
    if not isinstance(values, list) or len(values) < count or isinstance(values[0], str):
        raise TokenizerError("The vocabulary in the model file contradicts itself.", detail=key)
    return values  # type: ignore[return-value]  # an array of one type: not strings, so numbers


def _token_id(file: GGUFFile, name: str, count: int) -> int | None:
    value = file.get(f"tokenizer.ggml.{name}_token_id", None)
    return value if isinstance(value, int) and 0 <= value < count else None


def _end_of_generation(
    ids: dict[str, int], kinds: Sequence[float], named: dict[str, int | None]
) -> frozenset[int]:
    texts = {text for text in _END_OF_TURN if text in ids}
    texts |= {
        text
        for text in _END_OF_TURN_IF_CONTROL
        if text in ids and kinds[ids[text]] == TokenKind.CONTROL
    }
    # NOTE: in channel formats <|end|> closes a channel, not the reply.
    if texts >= {"<|return|>", "<|call|>"} or texts >= {"<|calls|>", "<|flush|>"}:
        texts.discard("<|end|>")
    if "<|tool_response>" in texts:
        texts.discard("</s>")
    stated = {named[key] for key in ("eos", "eot", "eom")}
    return frozenset({ids[text] for text in texts} | {i for i in stated if i is not None})


def _mark_kinds(
    ids: dict[str, int], kinds: MutableSequence[float], eog_ids: frozenset[int]
) -> None:
    for token_id in eog_ids:
        kinds[token_id] = TokenKind.CONTROL
    markers = _MARKERS | ({"<|end|>"} if "<|return|>" in ids else set())
    for text in markers & ids.keys():
        if ids[text] not in eog_ids:
            kinds[ids[text]] = TokenKind.USER_DEFINED


def _special_ids(texts: list[str], kinds: Sequence[float]) -> tuple[int, ...]:
    wanted = {TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.UNKNOWN}
    found = [i for i, kind in enumerate(kinds) if kind in wanted and i < len(texts) and texts[i]]
    return tuple(sorted(found, key=lambda i: -len(texts[i].encode())))
