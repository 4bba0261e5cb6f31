"""Moved keys are those of the new position; a moved copy goes on, branches and comes back."""

from __future__ import annotations

import pytest
import torch

from engine.config import KVCodec
from engine.gguf_file import GGUFFile
from engine.loader import load_model
from engine.memory.attention import MemoryOptions, PagedAttentionMemory
from engine.memory.cold_store import MemoryColdStore
from engine.memory.packing import numbers_of
from engine.memory.quantize import rotate
from engine.model_config import ModelConfig
from engine.quant.linear import Compute
from engine.session.rolling import KeyMover
from tests.engine.memory.naive import FINGERPRINT, assert_consistent
from tests.engine.tiny_models import TinyModel, write_tiny_model
from tests.reference import REFERENCE, needs_reference

BLOCK = 16
TEXT = [7 + token * 13 % 211 for token in range(130)]
# Sinks stay, then two runs from behind a gap each; borders lie inside blocks.
PLACES = [*range(5), *range(40, 61), *range(75, 130)]


class Reader:
    """One model over one memory."""

    def __init__(self, path, codec=KVCodec.F32, *, store=None, num_blocks=400):
        file = GGUFFile.open(path)
        self.config = ModelConfig.from_gguf(file)
        self.model = load_model(file, self.config, Compute())
        self.spec = self.config.memory_spec(FINGERPRINT)
        slack = MemoryOptions(codec, BLOCK, 1 << 40, slack_tokens=BLOCK)
        per_block = PagedAttentionMemory(self.spec, slack).breakdown().bytes_per_token * BLOCK
        options = MemoryOptions(codec, BLOCK, num_blocks * per_block, slack_tokens=BLOCK)
        self.memory = PagedAttentionMemory(self.spec, options, store=store)

    @torch.inference_mode()
    def read(self, sequence, token_ids, *, chunk=64):
        for start in range(0, len(token_ids), chunk):
            part = token_ids[start : start + chunk]
            first = self.memory.length(sequence)
            assert self.memory.allocate([(sequence, len(part))])
            view = self.memory.step([(sequence, len(part))])
            positions = torch.arange(first, first + len(part))
            logits = self.model(torch.tensor(part), positions, view, torch.tensor([len(part) - 1]))
            self.memory.commit(sequence, part)
        return logits[0]

    def roll(self, sequence, places, make_room=lambda: False):
        mover = KeyMover(self.model)
        with torch.inference_mode():
            return self.memory.roll(sequence, places, move_keys=mover.move, make_room=make_room)

    def held(self, sequence, layer, kind):
        """The keys or values (K, S, D) of a layer, and the position of the first one held."""
        found = self.memory._sequences[sequence]
        group = next(at for at, group in enumerate(self.spec.groups) if layer in group.layers)
        table = found.tables[group]
        slot = self.spec.groups[group].layers.index(layer)
        first = table.num_given_up * BLOCK
        parts = [numbers_of(block, BLOCK)[kind][slot].float() for block in table.blocks]
        matrix = (table.memory.rotation.keys, table.memory.rotation.values)[kind]
        whole = rotate(torch.cat(parts, dim=1)[:, : found.length - first], matrix)
        return whole, first


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def windowed(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "gemma.gguf"
    return write_tiny_model(path, TinyModel(architecture="gemma3", window=32))


def check_first_layer(path, codec=KVCodec.F32, *, tolerance=3e-5):
    """Keys and values of the first layer depend on token and position alone."""
    reader = Reader(path, codec)
    rolled = reader.memory.create()
    reader.read(rolled, TEXT)
    rolled = reader.roll(rolled, PLACES)
    fresh = reader.memory.create()
    reader.read(fresh, [TEXT[place] for place in PLACES])
    for kind in (0, 1):
        moved, first = reader.held(rolled, 0, kind)
        expected, first_fresh = reader.held(fresh, 0, kind)
        start = max(first, first_fresh)
        scale = expected.abs().max()
        difference = moved[:, start - first :] - expected[:, start - first_fresh :]
        assert difference.abs().max() / scale < tolerance
    return reader, rolled, fresh


@needs_reference
@pytest.mark.parametrize(
    "name",
    [
        "llama",
        "llama-yarn",
        "llama3-rope",
        "gemma3",
        "gpt-oss",
        "phi3",
        "stablelm",
        "smollm3",
        "qwen3",
    ],
)
def test_keys_of_the_first_layer_are_those_of_the_new_position(name):
    check_first_layer(REFERENCE / "models" / f"{name}.gguf")


@pytest.mark.parametrize(
    ("codec", "tolerance"),
    [(KVCodec.F16, 2e-3), (KVCodec.INT8, 0.03), (KVCodec.K8V4, 0.2)],
)
def test_packed_keys_are_moved_as_well(tiny, codec, tolerance):
    check_first_layer(tiny, codec, tolerance=tolerance)


def test_rotated_and_packed_keys_are_moved_as_they_were_before_both(tmp_path):
    path = write_tiny_model(tmp_path / "wide.gguf", TinyModel(head_dim=64, num_heads=2))
    check_first_layer(path, KVCodec.INT8, tolerance=0.03)


def test_what_did_not_move_keeps_its_bits(tiny):
    reader = Reader(tiny)
    sequence = reader.memory.create()
    reader.read(sequence, TEXT)
    before = [reader.held(sequence, layer, 0)[0][:, :5] for layer in range(2)]
    rolled = reader.roll(sequence, PLACES)
    for layer in range(2):
        assert torch.equal(reader.held(rolled, layer, 0)[0][:, :5], before[layer])


@pytest.mark.parametrize("name", ["tiny", "windowed"])
def test_a_moved_copy_goes_on_branches_and_goes_back(name, request):
    reader = Reader(request.getfixturevalue(name))
    memory = reader.memory
    sequence = memory.create()
    reader.read(sequence, TEXT)
    assert memory.can_roll(sequence, PLACES)
    copy = reader.roll(sequence, PLACES)
    tokens = [TEXT[place] for place in PLACES]
    assert memory.length(copy) == memory.num_places(copy) == len(PLACES)
    assert list(memory.token_ids(copy)) == tokens
    first = reader.read(copy, [5, 6, 7])
    branch = memory.fork(copy, len(PLACES))
    assert torch.equal(reader.read(branch, [5, 6, 7]), first)
    assert memory.truncate(copy, len(PLACES) - 3) == len(PLACES) - 3
    again = reader.read(copy, [*tokens[-3:], 5, 6, 7])
    assert again.shape == first.shape
    assert_consistent(memory)


@pytest.mark.parametrize("name", ["tiny", "windowed"])
def test_a_moved_copy_comes_back_after_a_restart(name, request):
    path, store = request.getfixturevalue(name), MemoryColdStore()
    reader = Reader(path, store=store)
    sequence = reader.memory.create()
    reader.read(sequence, TEXT)
    copy = reader.roll(sequence, PLACES)
    reader.read(copy, [3, 1, 4])
    store.submit(reader.memory.snapshot(copy, "chat", "main", b"log"))
    expected = reader.read(copy, [1, 5])
    again = Reader(path, store=store)
    (manifest,) = store.read_manifests(FINGERPRINT, "chat")
    restored, log, match = again.memory.restore(manifest)
    assert (log, match.total) == (b"log", len(PLACES) + 3)
    assert torch.equal(again.read(restored, [1, 5]), expected)


def test_nobody_takes_a_moved_block_for_a_fresh_one(tiny):
    reader = Reader(tiny)
    sequence = reader.memory.create()
    reader.read(sequence, TEXT)
    copy = reader.roll(sequence, PLACES)
    other = reader.memory.create()
    tokens = [TEXT[place] for place in PLACES]
    assert reader.memory.attach(other, tokens).total <= 5, "what stands at its old place is shared"
    assert reader.memory.attach(copy, [*tokens, 1, 2]).total == len(PLACES)


def test_copying_takes_no_more_than_what_it_gives_up(tiny):
    reader = Reader(tiny, num_blocks=10)
    sequence = reader.memory.create()
    reader.read(sequence, TEXT)
    copy = reader.roll(sequence, PLACES)
    assert reader.memory.length(copy) == len(PLACES)


def test_a_full_memory_makes_no_copy_and_says_so(tiny):
    reader = Reader(tiny, num_blocks=10)
    keeper = reader.memory.create()
    reader.read(keeper, [9, *TEXT[:125]])
    sequence = reader.memory.fork(keeper, 126)
    asked = []
    copy = reader.roll(sequence, [0, *range(20, 126)], lambda: bool(asked.append(1)))
    assert copy is None
    assert asked == [1]
    assert reader.memory.length(keeper) == 126
    assert_consistent(reader.memory)


def test_a_window_that_moved_on_comes_back_or_that_it_is_gone_is_told(windowed):
    store = MemoryColdStore()
    reader = Reader(windowed, store=store)
    sequence = reader.memory.create()
    reader.read(sequence, TEXT)
    store.submit(reader.memory.snapshot(sequence, "chat", "main", b""))
    reader.memory.clear()
    restored, _, _ = reader.memory.restore(store.read_manifests(FINGERPRINT, "chat")[0])
    assert reader.held(restored, 0, 0)[1] > 60
    assert reader.memory.can_roll(restored, range(70))
    assert reader.held(restored, 0, 0)[1] <= 48
    assert_consistent(reader.memory)
    reader.memory.clear()
    restored, _, _ = reader.memory.restore(store.read_manifests(FINGERPRINT, "chat")[0])
    store.blocks.clear()
    assert not reader.memory.can_roll(restored, range(70))
    assert reader.memory.snapshot(restored, "chat", "main", b"") is not None
