from __future__ import annotations

from pathlib import Path

from app.memory_estimate import MemoryEstimate, estimate_memory, state_bytes
from engine.memory.interface import AttentionGroup, MemorySpec, RecurrentState


def test_full_attention_grows_with_the_context_and_a_window_does_not() -> None:
    full = AttentionGroup((0, 1), num_key_value_heads=2, head_dim=64)
    window = AttentionGroup((2,), num_key_value_heads=2, head_dim=64, window=100)
    spec = MemorySpec(b"", (full, window))
    per_layer = 2 * 2 * 64 * 2
    assert state_bytes(spec, 1000, 2.0) == per_layer * (2 * 1000 + 100)


def test_recurrent_state_is_the_same_for_any_length() -> None:
    spec = MemorySpec(b"", (), RecurrentState((0, 1), (("conv", (3, 10)), ("ssm", (4, 5)))))
    assert state_bytes(spec, 10, 2.0) == state_bytes(spec, 10_000, 2.0) == 4 * 50 * 2


def test_estimate_fits_what_is_free() -> None:
    assert MemoryEstimate(1 << 20, 1 << 20, 8192, 1 << 30).fits
    assert not MemoryEstimate(1 << 30, 1 << 20, 8192, 1 << 30).fits


def test_estimate_of_a_real_model_is_its_file_and_its_context(smollm2_path: Path) -> None:
    memory = estimate_memory(smollm2_path, context_length=None, codec="f16")
    assert memory.weight_bytes == smollm2_path.stat().st_size
    assert memory.context_bytes == 8192 * 30 * 2 * 3 * 64 * 2
    assert estimate_memory(smollm2_path, context_length=1024, codec="f32").context_length == 1024
