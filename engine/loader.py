"""From a model file to a model that can be called."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Sequence

import numpy as np

from engine.device import free_memory_bytes
from engine.errors import LoadCancelledError, UnsupportedModelError
from engine.events import LoadProgress
from engine.gguf_file import GGUFFile, TensorInfo
from engine.model_config import ModelConfig
from engine.models import ARCHITECTURES, Model
from engine.quant.choose import fit_compute
from engine.quant.linear import Compute, QuantLinear
from engine.weights import Weights

# Change it when equal files must no longer share stored states.
ENGINE_KV_VERSION = 1
_SAMPLES_PER_TENSOR = 8
_SAMPLE_BYTES = 4096
_HASHED_KEYS = ("general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre")


def load_model(
    file: GGUFFile,
    config: ModelConfig,
    compute: Compute | Sequence[Compute],
    *,
    is_lazy: bool = False,
    on_progress: Callable[[LoadProgress], None] = lambda progress: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Model:
    """Build the model of a file.

    compute: of all layers, or of each. is_lazy: leave every matrix in the file until torch first
    multiplies with it; right where native kernels do the work. The file's mapping must stay open as
    long as the model lives.
    Raises: UnsupportedModelError for an architecture, tensor type or tensor that is not supported;
    ModelFileError naming a tensor that is missing or wrongly shaped; LoadCancelledError.
    """
    architecture = ARCHITECTURES.get(config.architecture)
    if architecture is None:
        message = f"Models of the {config.architecture} family are not supported yet."
        raise UnsupportedModelError(message, detail=f"supported: {', '.join(ARCHITECTURES)}")
    computes = [compute] * config.num_hidden_layers if isinstance(compute, Compute) else compute
    weights = Weights(file, _fitted(file, computes))
    model = architecture(config, weights)
    weights.finish()
    if not is_lazy:
        _materialize(model, on_progress, is_cancelled)
    model.requires_grad_(False)
    return model.eval()


def fingerprint(file: GGUFFile) -> bytes:
    """Identify what stored states depend on: weights, positions, tokenizer. 16 bytes.

    The tensor index is hashed whole, contents by up to 32 KiB of samples per tensor. Stable across
    processes, machines and file names.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(struct.pack("<I", ENGINE_KV_VERSION))
    _hash_metadata(digest, file)
    for name in sorted(file.tensors):
        info = file.tensors[name]
        digest.update(f"{name}\0{info.type.name}\0{info.shape}\0".encode())
        for sample in _samples(file, info):
            digest.update(sample)
    return digest.digest()


def _fitted(file: GGUFFile, computes: Sequence[Compute]) -> list[Compute]:
    """Adapt the choice to this machine's memory; other devices report their own shortage."""
    is_host = [compute.device.type == "cpu" for compute in computes]
    elsewhere = tuple(f"blk.{layer}." for layer, here in enumerate(is_host) if not here)
    num_weights = sum(
        math.prod(info.shape)
        for name, info in file.tensors.items()
        if not name.startswith(elsewhere)
    )
    free_bytes = free_memory_bytes()
    return [
        fit_compute(compute, num_weights, free_bytes) if here else compute
        for compute, here in zip(computes, is_host, strict=True)
    ]


def _materialize(
    model: Model, on_progress: Callable[[LoadProgress], None], is_cancelled: Callable[[], bool]
) -> None:
    """Dequantise every matrix, with a chance to cancel between two of them."""
    linears = [module for module in model.modules() if isinstance(module, QuantLinear)]
    total = sum(linear.data.size for linear in linears) or 1
    done = 0
    for linear in linears:
        if is_cancelled():
            raise LoadCancelledError("Loading the model was cancelled.")
        linear.materialize()
        done += linear.data.size
        on_progress(LoadProgress(done / total, "tensors"))


def _hash_metadata(digest: hashlib.blake2b, file: GGUFFile) -> None:
    """Hash what changes numbers without changing tensors: RoPE, scales, vocabulary."""
    prefix = f"{file.get('general.architecture', '')}."
    for key in sorted(file.metadata):
        value = file.metadata[key]
        if key.startswith(prefix) or key in _HASHED_KEYS:
            digest.update(f"{key}\0{value!r}\0".encode())
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"):
        values = file.get(key, [])
        if isinstance(values, list):
            digest.update("\0".join(map(str, values)).encode())


def _samples(file: GGUFFile, info: TensorInfo) -> list[bytes]:
    """Take evenly spaced pieces of a tensor, its first and last bytes among them."""
    data = file.data(info.name)
    if data.size <= _SAMPLES_PER_TENSOR * _SAMPLE_BYTES:
        return [data.tobytes()]
    starts = np.linspace(0, data.size - _SAMPLE_BYTES, _SAMPLES_PER_TENSOR, dtype=np.int64)
    return [data[start : start + _SAMPLE_BYTES].tobytes() for start in starts]
