"""How much of a model an accelerator computes, and in which numbers each layer does.

The last layers go there, with their keys and values and with the output head; the CPU embeds
tokens and computes the layers before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from engine.device import find_accelerator, free_memory_bytes
from engine.memory.codec import BlockLayout
from engine.memory.factory import block_size_of
from engine.placement import CPU, Placement
from engine.quant.choose import choose_compute
from engine.quant.linear import Compute

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.gguf_file import GGUFFile
    from engine.memory.interface import AttentionGroup, MemorySpec

# Of free device memory: the rest is for activations and whatever else runs there.
USABLE_SHARE = 0.8


def place_layers(
    file: GGUFFile, spec: MemorySpec, config: EngineConfig, num_layers: int
) -> Placement:
    """Decide which layers live on the accelerator; none where there is none.

    Raises: ValueError when the configuration names no device, or its share is not in [0, 1].
    """
    device, share = find_accelerator(config.device), config.offload_share
    if share is not None and not 0.0 <= share <= 1.0:
        raise ValueError(f"offload_share {share} is not in [0, 1]")
    if device is None or share == 0.0:
        return Placement.of(num_layers, CPU)
    if share is not None:
        return Placement.of(num_layers, device, num_offloaded=max(1, round(share * num_layers)))
    item = choose_compute(config.compute, str(device)).dtype.itemsize
    layers = [
        item * num_weights(file, f"blk.{layer}.") + _kv_bytes(spec, config, layer)
        for layer in range(num_layers)
    ]
    head = item * num_weights(file, "output.weight" if _has_head(file) else "token_embd.weight")
    count = num_that_fit(layers, head, int(USABLE_SHARE * free_memory_bytes(device)))
    return Placement.of(num_layers, device, num_offloaded=count)


def num_that_fit(layer_bytes: Sequence[int], head_bytes: int, free_bytes: int) -> int:
    """Return how many layers, counted from the last one, fit beside the head."""
    left, count = free_bytes - head_bytes, 0
    for num_bytes in reversed(layer_bytes):
        left -= num_bytes
        if left < 0:
            break
        count += 1
    return count


def num_weights(file: GGUFFile, prefix: str) -> int:
    """Return the numbers in all tensors whose names begin with prefix."""
    tensors = file.tensors.items()
    return sum(prod(info.shape) for name, info in tensors if name.startswith(prefix))


def computes_of(placement: Placement, config: EngineConfig) -> list[Compute]:
    """Return what each layer computes with, measured where that is not known."""
    chosen = {
        device: choose_compute(config.compute, str(device), config.cache_dir)
        for device in placement.devices
    }
    return [chosen[device] for device in placement.layers]


def _has_head(file: GGUFFile) -> bool:
    return "output.weight" in file.tensors


def _kv_bytes(spec: MemorySpec, config: EngineConfig, layer: int) -> int:
    """Return what keys and values of one full context take in one layer."""
    groups = [group for group in spec.groups if layer in group.layers]
    block_size = block_size_of(spec, config)
    return sum(_kv_bytes_of_layer(group, config, block_size) for group in groups)


def _kv_bytes_of_layer(group: AttentionGroup, config: EngineConfig, block_size: int) -> int:
    assert config.context_length is not None
    num_tokens = config.context_length
    if group.window is not None:
        num_tokens = min(num_tokens, group.window + config.prefill_chunk)
    single = replace(group, layers=group.layers[:1])
    slab_bytes = BlockLayout.of(single, config.kv_codec, block_size).slab_bytes
    return -(-num_tokens // block_size) * slab_bytes
