"""Putting a loaded model together: file, tokenizer, template, weights, memory, runner."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import torch

from engine.config import EngineConfig, KVCodec
from engine.device import choose_threads
from engine.errors import OutOfMemoryError
from engine.events import LoadProgress
from engine.gguf_file import GGUFFile
from engine.loader import fingerprint, load_model
from engine.memory.codec import BlockLayout
from engine.memory.factory import block_size_of, build_memory
from engine.memory.interface import Memory, MemorySpec
from engine.memory.storage import ColdStore
from engine.model_config import ModelConfig
from engine.model_name import model_name
from engine.models import Model
from engine.native_runner import NativeRunner
from engine.native_support import is_float
from engine.offload import computes_of, place_layers
from engine.placement import CPU, Placement
from engine.quant.linear import Compute
from engine.runner import Runner, TorchRunner
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer

DEFAULT_CONTEXT_LENGTH = 8192
_CODECS = tuple(KVCodec)
# Megabytes as Python objects, of which the tokenizer has a smaller copy.
_KEPT_BY_TOKENIZER = (
    "tokenizer.ggml.merges",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.token_type",
)


@dataclass(slots=True)
class LoadedModel:
    """Everything that belongs to one loaded model. close gives it all back."""

    file: GGUFFile
    config: ModelConfig
    name: str
    quantisation: str
    num_parameters: int
    fingerprint: bytes
    tokenizer: Tokenizer
    template: ChatTemplate
    memory: Memory
    runner: Runner
    placement: Placement
    context_length: int
    block_size: int
    num_threads: int
    kv_bytes_per_token: dict[str, int]
    load_ms: float

    def close(self) -> None:
        """Drop the memory's blocks and the mapping of the file."""
        self.runner.close()
        self.memory.clear()
        self.file.close()


@contextmanager
def _paused_collector() -> Iterator[None]:
    """Let nobody look for garbage among a vocabulary's many objects while they are made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_paused_collector()
def load(
    file: GGUFFile,
    config: EngineConfig,
    store: ColdStore | None,
    on_progress: Callable[[LoadProgress], None],
    is_cancelled: Callable[[], bool],
) -> LoadedModel:
    """Make an open file ready to generate.

    Raises: as ``Engine.load``.
    """
    started = time.perf_counter()
    on_progress(LoadProgress(0.0, "header"))
    model_config = ModelConfig.from_gguf(file)
    tokenizer = Tokenizer.from_gguf(file)
    num_threads = choose_threads(config.num_threads)
    torch.set_num_threads(num_threads)
    model_fingerprint = fingerprint(file)
    for key in _KEPT_BY_TOKENIZER:
        file.forget(key)
    spec = model_config.memory_spec(model_fingerprint)
    context_length = _context_length(config, model_config)
    sized = replace(config, context_length=context_length)
    block_size = block_size_of(spec, config)
    placement = place_layers(file, spec, sized, model_config.num_hidden_layers)
    runner = _load_runner(
        file, config, model_config, placement, num_threads, on_progress, is_cancelled
    )
    return LoadedModel(
        file=file,
        config=model_config,
        name=model_name(file.paths[0]),
        quantisation=_quantisation(file),
        num_parameters=sum(prod(info.shape) for info in file.tensors.values()),
        fingerprint=model_fingerprint,
        tokenizer=tokenizer,
        template=ChatTemplate.from_gguf(file),
        memory=build_memory(spec, sized, store=store, placement=placement),
        runner=runner,
        placement=placement,
        context_length=context_length,
        block_size=block_size,
        num_threads=num_threads,
        kv_bytes_per_token={
            codec.value: _bytes_per_token(spec, codec, block_size) for codec in _CODECS
        },
        load_ms=(time.perf_counter() - started) * 1000.0,
    )


def _load_runner(
    file: GGUFFile,
    config: EngineConfig,
    model_config: ModelConfig,
    placement: Placement,
    num_threads: int,
    on_progress: Callable[[LoadProgress], None],
    is_cancelled: Callable[[], bool],
) -> Runner:
    """Take the native kernels on the CPU where they know model and codec, else torch."""
    try:
        if config.kernels and placement.is_on_cpu:
            lazy = load_model(file, model_config, Compute(), is_lazy=True)
            if NativeRunner.supports(lazy, config.kv_codec):
                on_progress(LoadProgress(0.5, "kernels"))
                runner = NativeRunner(
                    lazy,
                    num_threads=num_threads,
                    is_cancelled=is_cancelled,
                    release_embedding=_release_embedding(file, lazy),
                )
                file.release_pages()
                return runner
        computes = computes_of(placement, config)
        model = load_model(
            file, model_config, computes, on_progress=on_progress, is_cancelled=is_cancelled
        )
    except (MemoryError, RuntimeError) as error:  # torch reports a failed allocation so
        raise OutOfMemoryError(
            "There is not enough memory for this model.", detail=str(error)
        ) from error
    return TorchRunner(model, _description(computes))


def _description(computes: Sequence[Compute]) -> str:
    """Name what torch computes with, and where it is not all on the CPU."""
    parts = []
    for compute, count in Counter(computes).items():
        dtype = str(compute.dtype).removeprefix("torch.")
        where = "" if compute.device == CPU else f" on {compute.device}"
        parts.append(f"{dtype}{where}" if count == len(computes) else f"{count} x {dtype}{where}")
    return f"torch {', '.join(parts)}"


def _release_embedding(file: GGUFFile, model: Model) -> Callable[[], None]:
    """Return what lets go of the embedding's pages; they stay where every token needs them all."""
    if is_float(model.output):
        return lambda: None
    return partial(file.release_pages, "token_embd.weight")


def _context_length(config: EngineConfig, model_config: ModelConfig) -> int:
    wished = config.context_length or DEFAULT_CONTEXT_LENGTH
    return min(wished, model_config.context_length)


def _bytes_per_token(spec: MemorySpec, codec: KVCodec, block_size: int) -> int:
    """Return the bytes one token takes in full blocks, scales included."""
    slabs = (BlockLayout.of(group, codec, block_size).slab_bytes for group in spec.groups)
    return sum(slabs) // block_size


def _quantisation(file: GGUFFile) -> str:
    """Name the type that holds most of the weights."""
    sizes: Counter[str] = Counter()
    for info in file.tensors.values():
        sizes[info.type.name] += info.num_bytes
    return sizes.most_common(1)[0][0] if sizes else "none"
