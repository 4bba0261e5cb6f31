"""Cutting text into tokens by merging neighbours, best rank first, on raw characters.

This is what SentencePiece vocabularies need; byte-level ones use the `tokenizers` library.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable
from functools import lru_cache

from engine.text.vocabulary import Vocabulary

SPACE = "\u2581"
_LONGEST_CACHED_WORD = 64

# rank(left, right): the lower, the earlier the two are merged; None where they never are.
Rank = Callable[[str, str], float | None]


class Merger:
    """Merges characters into tokens of a vocabulary; what forms none is spelled in bytes.

    Source: SentencePiece BPE as llama.cpp runs it (best rank first, leftmost among equals).
    """

    def __init__(self, vocabulary: Vocabulary, rank: Rank) -> None:
        """vocabulary: must spell the bytes 0-255 as <0x00>-<0xFF>, or they are unknown."""
        self._ids = vocabulary.ids
        self._rank = rank
        unknown = vocabulary.ids.get("<unk>")
        spelled = (vocabulary.ids.get(f"<0x{byte:02X}>", unknown) for byte in range(256))
        self._byte_ids = [() if token_id is None else (token_id,) for token_id in spelled]
        self._words = _word_pattern(vocabulary)
        self._encode_cached = lru_cache(maxsize=20_000)(self._encode_word)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of text in which spaces are already escaped."""
        token_ids: list[int] = []
        for word in self._words.findall(text):
            is_short = len(word) <= _LONGEST_CACHED_WORD
            token_ids += self._encode_cached(word) if is_short else self._encode_word(word)
        return token_ids

    def _encode_word(self, word: str) -> tuple[int, ...]:
        if word in self._ids and len(word) == 1:
            return (self._ids[word],)
        token_ids: list[int] = []
        for piece in _merge(list(word), self._rank):
            token_id = self._ids.get(piece)
            token_ids += self._spell(piece) if token_id is None else (token_id,)
        return tuple(token_ids)

    def _spell(self, piece: str) -> list[int]:
        return [token_id for byte in piece.encode() for token_id in self._byte_ids[byte]]


def score_rank(vocabulary: Vocabulary) -> Rank:
    """Rank a pair by the score of the token it forms."""
    ids, scores = vocabulary.ids, vocabulary.scores

    def rank(left: str, right: str) -> float | None:
        token_id = ids.get(left + right)
        return None if token_id is None else -scores[token_id]

    return rank


def merge_list_rank(merges: list[str]) -> Rank:
    """Rank a pair by its place in the file's list of merges ("left right")."""
    ranks = dict(zip(reversed(merges), range(len(merges) - 1, -1, -1), strict=True))

    def rank(left: str, right: str) -> float | None:
        return ranks.get(f"{left} {right}")

    return rank


def _merge(pieces: list[str], rank: Rank) -> list[str]:
    """Merge neighbours until no pair has a rank. A merged-away piece becomes "" on the way."""
    after = [*range(1, len(pieces)), -1]
    before = [*range(-1, len(pieces) - 1)]
    queue: list[tuple[float, int, int, int]] = []

    def offer(left: int, right: int) -> None:
        found = rank(pieces[left], pieces[right])
        if found is not None:
            size = len(pieces[left]) + len(pieces[right])
            heapq.heappush(queue, (found, left, right, size))

    for left in range(len(pieces) - 1):
        offer(left, left + 1)
    while queue:
        _, left, right, size = heapq.heappop(queue)
        is_stale = not pieces[left] or not pieces[right]
        if is_stale or len(pieces[left]) + len(pieces[right]) != size:
            continue
        pieces[left] += pieces[right]
        pieces[right] = ""
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
            offer(left, after[left])
        if before[left] >= 0:
            offer(before[left], left)
    return [piece for piece in pieces if piece]


def _word_pattern(vocabulary: Vocabulary) -> re.Pattern[str]:
    """Return a pattern of words that no merge can cross.

    A space begins a word unless some token holds a space after the character before it. Words
    repeat, so that merging each of them once saves most of the work.
    """
    inner = set(re.findall(f"[^{SPACE}\0](?={SPACE})", "\0".join(vocabulary.texts)))
    joined = "".join(sorted(re.escape(character) for character in inner))
    return re.compile(f"(?s:.(?:(?<=[{SPACE}{joined}]).|[^{SPACE}])*)")
