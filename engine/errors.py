"""Typed errors of the engine: what the world did wrong, in plain words.

Broken invariants of our own are asserts, never one of these.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of every error the engine raises on purpose.

    The message is one plain sentence for the user; ``detail`` holds what a bug report needs.
    """

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class ModelFileError(EngineError):
    """The GGUF file is damaged, truncated, foreign-endian, or of an unknown version.

    ``detail`` names the byte offset or the metadata key where reading stopped.
    """


class UnsupportedModelError(EngineError):
    """The file is sound but its architecture, tensor type or tokenizer is not supported here."""


class TokenizerError(EngineError):
    """The vocabulary in the file cannot be turned into a tokenizer."""


class ChatTemplateError(EngineError):
    """The chat template fails to parse or to render these messages."""


class ContextOverflowError(EngineError):
    """The prompt does not fit the context.

    prompt_tokens, context_length: sizes in tokens.
    """

    def __init__(self, prompt_tokens: int, context_length: int) -> None:
        super().__init__(
            f"This conversation needs {prompt_tokens} tokens, "
            f"but the context holds {context_length}."
        )
        self.prompt_tokens = prompt_tokens
        self.context_length = context_length


class OutOfMemoryError(EngineError):
    """Memory for weights or for the state cannot be had within the budget."""


class SnapshotError(EngineError):
    """A stored state cannot be used: damaged, of another model, or of an unknown format."""


class StoreError(EngineError):
    """The cold store refuses a read or a write: disk full, locked, or broken."""


class LoadCancelledError(EngineError):
    """The user cancelled the loading of a model."""
