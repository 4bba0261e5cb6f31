"""What a model would take, in one sentence. Used wherever a load is offered."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from app.memory_estimate import MemoryEstimate
from ui.formats import count_text, size_text


def memory_words(memory: MemoryEstimate) -> str:
    """Return what a model needs, of what, and how much is free."""
    text = QCoreApplication.translate(
        "ModelsDialog", "Needs about {0}: {1} for the model, {2} for {3} tokens. {4} are free."
    )
    return text.format(
        size_text(memory.total_bytes),
        size_text(memory.weight_bytes),
        size_text(memory.context_bytes),
        count_text(memory.context_length),
        size_text(memory.free_bytes),
    )
