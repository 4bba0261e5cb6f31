"""One sequence of tokens and the blocks that hold its keys and values.

Plain data with the few operations that touch nothing but the sequence and its pools.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.config import BLOCK_SIZES
from engine.memory.block_pool import share_blocks
from engine.memory.prefix_index import ROOT, TOKEN_BYTES, chain_hash

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as TokenSequence

    import numpy as np
    import numpy.typing as npt

    from engine.memory.block_pool import Block, BlockPool
    from engine.memory.interface import AttentionGroup
    from engine.memory.quantize import Rotation


@dataclass(slots=True)
class GroupMemory:
    """What all sequences share for one attention group.

    pool: of exact blocks, the only ones that are written token by token. packed: of quantised
    blocks, where the codec has them. salt: of the chain hashes. rotation: on the CPU; rotations: on
    the device of each part of a block. slack_tokens: how far behind the window blocks are still
    held, so that going back a little costs nothing.
    """

    group: AttentionGroup
    pool: BlockPool
    packed: BlockPool | None
    salt: bytes
    rotation: Rotation
    rotations: tuple[Rotation, ...]
    slack_tokens: int = 0

    @property
    def pools(self) -> tuple[BlockPool, ...]:
        """Return the pools there are."""
        return (self.pool,) if self.packed is None else (self.pool, self.packed)

    def first_needed(self, num_tokens: int) -> int:
        """Return the first block that the tokens after the first num_tokens still see."""
        window = self.group.window
        if window is None:
            return 0
        return max(0, num_tokens - window + 1) // self.pool.layout.block_size

    def first_held(self, num_tokens: int) -> int:
        """Return the first block that a sequence of num_tokens keeps."""
        slack = max(self.slack_tokens, self.pool.layout.block_size)
        return self.first_needed(max(0, num_tokens - slack))

    def worth_storing(self, num_blocks: int, borders: Iterable[int]) -> list[int]:
        """Return those of the first num_blocks blocks that are seen from one of some lengths.

        Where blocks become larger ones, the length reached and the first token of the window are
        each rounded down to a border of theirs, so that much more is kept.
        """
        if self.group.window is None:
            return list(range(num_blocks))
        size, slack = self.pool.layout.block_size, 2 * BLOCK_SIZES[-1]
        kept: set[int] = set()
        for border in borders:
            first = self.first_needed(max(0, border - slack))
            kept.update(range(first, min(num_blocks, border // size + 1)))
        return sorted(kept)

    def find(self, block_hash: bytes) -> Block | None:
        """Return the hot block of this hash, an exact one before a quantised one."""
        found = self.pool.index.get(block_hash)
        if found is None and self.packed is not None:
            return self.packed.index.get(block_hash)
        return found


class BlockAddresses(NamedTuple):
    """Where blocks from ``first`` on lie, which is asked for at every step and seldom changes.

    pointers: (N,) int64 and is_packed: (N,) uint8, as in ``NativeTable``.
    """

    first: int
    blocks: list[Block]
    pointers: npt.NDArray[np.int64]
    is_packed: npt.NDArray[np.uint8]


@dataclass(slots=True)
class BlockTable:
    """The blocks of one sequence in one group.

    blocks: those held, from block ``num_given_up`` on; the ones before have left the window.
    hashes: of the full blocks, those given up included, which come first; at most one block that is
    not full follows, the tail, then reserved ones. num_settled: how many of the full ones are in
    their final codec. root: parent of the first block; another one where the blocks are derived.
    addresses: those last asked for, by part of the blocks; whoever uses them looks whether they are
    still those of the same blocks. They hold on to no block that was given up.
    """

    memory: GroupMemory
    blocks: list[Block] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    num_settled: int = 0
    num_given_up: int = 0
    root: bytes = ROOT
    addresses: dict[int, BlockAddresses] = field(default_factory=dict, compare=False)

    @property
    def num_blocks(self) -> int:
        """Blocks there are, those given up included."""
        return self.num_given_up + len(self.blocks)

    def span(self, start: int, end: int) -> list[Block]:
        """Return blocks start..end, all held."""
        assert start >= self.num_given_up
        return self.blocks[start - self.num_given_up : max(0, end - self.num_given_up)]

    def block(self, at: int) -> Block:
        """Return one block, which is held."""
        assert at >= self.num_given_up
        return self.blocks[at - self.num_given_up]

    def replace(self, at: int, block: Block) -> None:
        """Put another block with the same content in the place of one."""
        assert at >= self.num_given_up
        self.blocks[at - self.num_given_up] = block
        self.addresses.clear()

    def is_reachable(self, num_tokens: int) -> bool:
        """Tell whether everything is held that the tokens after the first num_tokens see."""
        return self.memory.first_needed(num_tokens) >= self.num_given_up

    def give_up(self, num_blocks: int) -> None:
        """Let the first num_blocks blocks go, all settled; they can still be found by content."""
        assert num_blocks <= self.num_settled
        count = max(0, num_blocks - self.num_given_up)
        for block in self.blocks[:count]:
            block.pool.release(block)
        del self.blocks[:count]
        self.addresses.clear()
        self.num_given_up += count

    def append_given_up(self, block_hash: bytes) -> None:
        """Take a sealed block that is not held as the next one; none before it is held either."""
        assert self.num_blocks == len(self.hashes)
        self.num_settled = len(self.hashes)
        self.give_up(len(self.hashes))
        self.hashes.append(block_hash)
        self.num_given_up += 1
        self.num_settled += 1

    def tip(self, num_blocks: int) -> bytes:
        """Return the hash of the last of the first num_blocks blocks."""
        return self.hashes[num_blocks - 1] if num_blocks else self.root

    def reserve(self, num_blocks: int) -> bool:
        """Grow to that many blocks; False when the pool ran out on the way."""
        while self.num_blocks < num_blocks:
            block = self.memory.pool.allocate()
            if block is None:
                return False
            self.blocks.append(block)
        return True

    def cut(self, num_blocks: int) -> None:
        """Give up every block from num_blocks on, the last one first."""
        self.addresses.clear()
        while self.blocks and self.num_blocks > num_blocks:
            block = self.blocks.pop()
            block.pool.release(block)
        self.num_given_up = min(self.num_given_up, num_blocks)
        del self.hashes[num_blocks:]
        self.num_settled = min(self.num_settled, num_blocks)

    def seal_next(self, token_ids: bytes) -> None:
        """Seal the first open block, which holds these tokens."""
        at = len(self.hashes)
        parent = self.tip(at)
        block_hash = chain_hash(parent, token_ids, self.memory.salt)
        block = self.block(at)
        sealed = block.pool.seal(block, block_hash=block_hash, parent=parent, token_ids=token_ids)
        self.replace(at, sealed)
        self.hashes.append(block_hash)

    def shared_tail(self) -> Block | None:
        """Return the tail while it is sealed; None while it is open, or where there is none."""
        at = len(self.hashes)
        if at >= self.num_blocks or self.block(at).hash is None:
            return None
        return self.block(at)

    def share_tail(self, token_ids: bytes) -> None:
        """Seal the tail, which holds these tokens, so that all with equal text have one."""
        if self.shared_tail() is not None:
            return
        at = len(self.hashes)
        parent, block = self.tip(at), self.block(at)
        block_hash = chain_hash(parent, token_ids, self.memory.salt)
        sealed = block.pool.seal(block, block_hash=block_hash, parent=parent, token_ids=token_ids)
        self.replace(at, sealed)

    def append_sealing(self, block: Block, block_hash: bytes, token_ids: bytes) -> None:
        """Take an open block that is ours and holds these tokens as the next one, and seal it.

        block_hash: of the tokens, in this chain.
        """
        assert self.num_blocks == len(self.hashes)
        parent = self.tip(len(self.hashes))
        sealed = block.pool.seal(block, block_hash=block_hash, parent=parent, token_ids=token_ids)
        self.blocks.append(sealed)
        self.hashes.append(block_hash)

    def append_open(self, block: Block) -> None:
        """Take an open block that already is ours as the next one."""
        assert block.hash is None
        assert self.num_blocks == len(self.hashes)
        self.blocks.append(block)

    def share_with(self, other: BlockTable, num_blocks: int) -> None:
        """Make the first num_blocks blocks, all sealed, those of an empty table as well."""
        assert num_blocks <= len(self.hashes)
        assert not other.blocks
        other.num_given_up = min(self.num_given_up, num_blocks)
        other.blocks = self.blocks[: num_blocks - other.num_given_up]
        other.hashes = self.hashes[:num_blocks]
        other.num_settled = min(self.num_settled, num_blocks)
        other.root = self.root
        share_blocks(other.blocks)

    def append_shared(self, block: Block) -> None:
        """Take a sealed block as the next one."""
        assert block.hash is not None
        assert self.num_blocks == len(self.hashes)
        block.pool.acquire(block)
        self.blocks.append(block)
        self.hashes.append(block.hash)


@dataclass(frozen=True, slots=True)
class Prefix:
    """A beginning of which not every token is kept, or not where it was read.

    token_ids: all tokens that were read. num_cells: how many places of the blocks stand for them.
    root: what the hashes of those blocks derive from.
    """

    token_ids: array[int]
    num_cells: int
    root: bytes

    @property
    def num_dropped(self) -> int:
        """Tokens without a place."""
        return len(self.token_ids) - self.num_cells


@dataclass(slots=True)
class Sequence:
    """Tokens in place and their block tables, one per group.

    token_ids: those evaluated, one per place in the blocks. num_reserved: places there is room for.
    num_pinned: leading ones that stay exact, for system prompts. prefix: where the sequence began
    as a thinned-out copy; then its first ``num_cells`` token ids are those of the first kv head.
    Where it began as a moved copy, the prefix is its first token alone.
    """

    tables: list[BlockTable]
    token_ids: array[int] = field(default_factory=lambda: array("i"))
    num_reserved: int = 0
    num_pinned: int = 0
    prefix: Prefix | None = None

    @property
    def length(self) -> int:
        """Places taken in the blocks."""
        return len(self.token_ids)

    @property
    def num_dropped(self) -> int:
        """Tokens that were read but have no place any more."""
        return 0 if self.prefix is None else self.prefix.num_dropped

    @property
    def num_tokens(self) -> int:
        """Tokens that were read: the position of the next one."""
        return self.length + self.num_dropped

    def all_token_ids(self) -> array[int]:
        """Return the tokens that were read."""
        if self.prefix is None:
            return self.token_ids
        return self.prefix.token_ids + self.token_ids[self.prefix.num_cells :]

    def placed(self, token_ids: TokenSequence[int]) -> array[int]:
        """Return what token_ids, which go on from the prefix, are in places of the blocks."""
        ids = array("i", token_ids)
        if self.prefix is None:
            return ids
        return self.token_ids[: self.prefix.num_cells] + ids[len(self.prefix.token_ids) :]

    def place_of(self, num_tokens: int) -> int | None:
        """Return how many places the first num_tokens take; None inside a thinned-out prefix."""
        if self.prefix is None or num_tokens == 0:
            return num_tokens
        if num_tokens < len(self.prefix.token_ids):
            return None
        return num_tokens - self.prefix.num_dropped

    def token_bytes(self, start: int, end: int) -> bytes:
        """Return tokens start..end as int32 little-endian."""
        return to_bytes(self.token_ids[start:end])


def to_bytes(token_ids: TokenSequence[int]) -> bytes:
    """Return token ids as int32 little-endian."""
    ids = token_ids if isinstance(token_ids, array) else array("i", token_ids)
    assert ids.itemsize == TOKEN_BYTES
    if _IS_BIG_ENDIAN:
        ids = array("i", ids)
        ids.byteswap()
    return ids.tobytes()


def from_bytes(data: bytes) -> array[int]:
    """Return the token ids of an int32 little-endian buffer."""
    ids = array("i")
    ids.frombytes(data)
    if _IS_BIG_ENDIAN:
        ids.byteswap()
    return ids


_IS_BIG_ENDIAN = array("H", [1]).tobytes() == b"\x00\x01"
