"""What of a sliding window is stored: what is seen from the end and from message borders."""

import pytest

from engine.config import KVCodec
from engine.memory.attention import PagedAttentionMemory
from engine.memory.building import MemoryOptions
from engine.memory.cold_store import MemoryColdStore
from engine.memory.interface import AttentionGroup
from tests.engine.memory.naive import assert_consistent, assert_holds, tiny_spec, write_tokens

SPEC = tiny_spec(AttentionGroup((0,), 1, 8), AttentionGroup((1, 2), 1, 8, window=40))
TEXT = [at % 97 for at in range(2000)]
BORDER = 900


def build(store, *, codec=KVCodec.F32, block_size=32):
    options = MemoryOptions(codec, block_size, 1 << 24, slack_tokens=0)
    return PagedAttentionMemory(SPEC, options, store=store)


def grow(memory, sequence, known, text):
    for at in range(0, len(text), 250):
        new = text[at : at + 250]
        assert write_tokens(memory, SPEC, sequence, known + text[:at], new)


def save(memory, store, sequence, borders=()):
    job = memory.snapshot(sequence, "chat", "main", b"", borders=borders)
    store.submit(job)
    drop_unnamed(store)


def drop_unnamed(store):
    """As the database does when a manifest is replaced."""
    named = {(m.fingerprint, h) for m in store.manifests.values() for h in m.block_hashes}
    store.blocks = {key: block for key, block in store.blocks.items() if key in named}


def stored(*borders, text=TEXT, **format_):
    store = MemoryColdStore()
    memory = build(store, **format_)
    sequence = memory.create()
    grow(memory, sequence, [], text)
    save(memory, store, sequence, borders)
    return store


def restored(store, **format_):
    memory = build(store, **format_)
    (manifest,) = store.read_manifests(SPEC.fingerprint, "chat")
    sequence, _, match = memory.restore(manifest)
    return memory, sequence, match


def num_blocks(store, memory, group):
    layout = memory._groups.memories[group].pool.layout
    return sum(len(block.payload) == layout.slab_bytes for block in store.blocks.values())


def lose_last_window(store):
    hashes = store.manifests[SPEC.fingerprint, "chat", "main"].block_hashes
    store.discard_blocks(SPEC.fingerprint, hashes[-9:])


def test_only_the_last_window_is_stored_where_there_are_no_borders():
    store = stored()
    memory, sequence, match = restored(store)
    assert match.total == 2000
    assert_holds(memory, SPEC, sequence, TEXT)
    assert num_blocks(store, memory, 0) == 62
    # From 296 tokens before the end on; what is behind the last whole block is the tail.
    assert num_blocks(store, memory, 1) == 62 - (2000 - 40 - 256 + 1) // 32


@pytest.mark.parametrize("codec", [KVCodec.F32, KVCodec.INT8])
def test_a_border_is_reached_after_a_restart_and_nothing_else_before_the_window(codec):
    store = stored(BORDER, codec=codec)
    memory, sequence, _ = restored(store, codec=codec)
    full = BORDER // 32 * 32
    assert memory.rollback_limit(sequence, 1500) == full + 32
    assert memory.rollback_limit(sequence, 500) == 0
    branch = memory.fork(sequence, full)
    assert branch is not None
    grow(memory, branch, TEXT[:full], [5] * 60)
    assert_holds(memory, SPEC, branch, TEXT[:full] + [5] * 60, tolerance=0.05)
    assert memory.truncate(sequence, BORDER) == full
    assert_consistent(memory)


def test_a_window_that_no_border_sees_any_more_is_not_kept():
    store = MemoryColdStore()
    memory = build(store)
    sequence = memory.create()
    known = []
    for end in range(200, 2001, 200):
        grow(memory, sequence, known, TEXT[len(known) : end])
        known = TEXT[:end]
        save(memory, store, sequence)
    assert num_blocks(store, memory, 0) == 62
    assert num_blocks(store, memory, 1) == 62 - (2000 - 40 - 256 + 1) // 32


def test_a_border_of_before_is_kept_by_later_turns_after_a_restart():
    store = stored(BORDER)
    memory, sequence, _ = restored(store)
    grow(memory, sequence, TEXT, [3] * 500)
    save(memory, store, sequence, [BORDER, 2000])
    memory, sequence, match = restored(store)
    assert match.total == 2500
    assert memory.rollback_limit(sequence, 2000) >= 2000 - 32
    assert memory.rollback_limit(sequence, BORDER) >= BORDER - 32


def test_a_store_without_the_last_window_gives_what_a_border_sees():
    store = stored(BORDER)
    lose_last_window(store)
    memory, sequence, match = restored(store)
    assert BORDER - 32 <= match.total <= BORDER + 32
    assert_holds(memory, SPEC, sequence, TEXT[: match.total])


@pytest.mark.parametrize("old", [(KVCodec.F32, 16), (KVCodec.INT8, 32), (KVCodec.F16, 128)])
@pytest.mark.parametrize("new", [(KVCodec.F16, 16), (KVCodec.K8V4, 64), (KVCodec.F16, 128)])
def test_another_format_converts_the_windows_there_are(old, new):
    store = stored(BORDER, codec=old[0], block_size=old[1])
    memory, sequence, match = restored(store, codec=new[0], block_size=new[1])
    assert match.total == 2000
    assert_holds(memory, SPEC, sequence, TEXT, tolerance=0.3)
    reached = memory.rollback_limit(sequence, BORDER)
    assert BORDER - new[1] < reached <= BORDER
    assert memory.truncate(sequence, BORDER) == reached
    assert_holds(memory, SPEC, sequence, TEXT[:reached], tolerance=0.3)
    assert_consistent(memory)


def test_without_the_last_window_a_conversion_ends_at_what_a_border_sees():
    store = stored(BORDER)
    lose_last_window(store)
    memory, sequence, match = restored(store, codec=KVCodec.F16)
    assert BORDER - 32 <= match.total <= BORDER + 32
    assert_holds(memory, SPEC, sequence, TEXT[: match.total], tolerance=0.01)
    assert_consistent(memory)


def test_room_is_prepared_for_whole_layers_and_for_windows_alone():
    memory = build(MemoryColdStore())
    whole, windows = (one.pool for one in memory._groups.memories)
    memory.prepare(600 * whole.slab_bytes + 2 * windows.slab_bytes)
    assert whole._num_free >= 600
    assert windows._num_free < 300
