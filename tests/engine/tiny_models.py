"""Tiny models with random weights, written as real GGUF files.

``write_tiny_model(path)`` gives a two-layer Llama with a byte-level vocabulary and a ChatML
template that loads in milliseconds. ``TinyModel`` says what can be varied.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("t h", "th e", "a n", "an d", "Ġ the", "o n", "i n", "e r")
_NORMAL, _CONTROL = 1, 3


@dataclass(frozen=True)
class TinyModel:
    """Sizes of a tiny model. window: of gemma3's local layers. kind: how matrices are stored."""

    architecture: str = "llama"
    num_layers: int = 2
    hidden_size: int = 64
    intermediate_size: int = 96
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    context_length: int = 1024
    window: int = 32
    is_tied: bool = True
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32
    seed: int = 0


def write_tiny_model(path: Path, model: TinyModel = TinyModel()) -> Path:
    """Write the file and return its path."""
    writer = gguf.GGUFWriter(path, model.architecture)
    _write_metadata(writer, model)
    _write_vocabulary(writer)
    for name, values in tensors(model).items():
        is_matrix = values.ndim == 2
        kind = model.kind if is_matrix else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def vocabulary() -> tuple[str, ...]:
    """Special tokens, 256 bytes in GPT-2's spelling, results of the merges."""
    return (*SPECIAL_TOKENS, *byte_letters(), *(merge.replace(" ", "") for merge in MERGES))


def byte_letters() -> list[str]:
    """Return the letter that stands for each byte, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def tensors(model: TinyModel) -> dict[str, np.ndarray]:
    """Draw the weights: name to float32 array."""
    rng = np.random.default_rng(model.seed)
    size = model.hidden_size

    def matrix(rows: int, columns: int) -> np.ndarray:
        scale = 1.5 / np.sqrt(columns)
        return (rng.standard_normal((rows, columns)) * scale).astype(np.float32)

    def norm(length: int) -> np.ndarray:
        return (1 + 0.2 * rng.standard_normal(length)).astype(np.float32)

    found = {"token_embd.weight": matrix(len(vocabulary()), size), "output_norm.weight": norm(size)}
    if not model.is_tied:
        found["output.weight"] = matrix(len(vocabulary()), size)
    q_size, kv_size = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    for layer in range(model.num_layers):
        shapes = {
            "attn_q": (q_size, size), "attn_k": (kv_size, size), "attn_v": (kv_size, size),
            "attn_output": (size, q_size), "ffn_gate": (model.intermediate_size, size),
            "ffn_up": (model.intermediate_size, size), "ffn_down": (size, model.intermediate_size),
        }  # fmt: skip
        for name, shape in shapes.items():
            found[f"blk.{layer}.{name}.weight"] = matrix(*shape)
        for name, length in _norms(model).items():
            found[f"blk.{layer}.{name}.weight"] = norm(length)
    return found


def _norms(model: TinyModel) -> dict[str, int]:
    names = {"attn_norm": model.hidden_size, "ffn_norm": model.hidden_size}
    if model.architecture == "gemma3":
        names |= {"post_attention_norm": model.hidden_size, "post_ffw_norm": model.hidden_size}
        names |= {"attn_q_norm": model.head_dim, "attn_k_norm": model.head_dim}
    return names


def _write_metadata(writer: gguf.GGUFWriter, model: TinyModel) -> None:
    writer.add_name(f"tiny {model.architecture}")
    writer.add_context_length(model.context_length)
    writer.add_embedding_length(model.hidden_size)
    writer.add_block_count(model.num_layers)
    writer.add_feed_forward_length(model.intermediate_size)
    writer.add_head_count(model.num_heads)
    writer.add_head_count_kv(model.num_kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(model.head_dim)
    if model.architecture == "gemma3":
        writer.add_sliding_window(model.window)
        writer.add_sliding_window_pattern(2)


def _write_vocabulary(writer: gguf.GGUFWriter) -> None:
    tokens = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_merges(MERGES)
    writer.add_token_types([_CONTROL if token in SPECIAL_TOKENS else _NORMAL for token in tokens])
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
