"""The errors a user may meet: one line that names the thing, and a hint of what to do.

Lives at the bottom: it imports nothing, and must not know terminals, torch or files.
"""

from __future__ import annotations

from typing import ClassVar


class LlmcliError(Exception):
    """A mistake or a limit that the user can act on; printed without a traceback.

    `message` names the thing and both values (what was found, what was needed);
    `hint` says what to do next and may be empty.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


class UsageError(LlmcliError):
    """The command line asks for something that cannot be asked."""

    exit_code: ClassVar[int] = 2


class CheckpointError(LlmcliError):
    """A checkpoint on disk is damaged, incomplete or does not fit its own config."""


class UnsupportedError(CheckpointError):
    """A checkpoint is sound, but asks for something that llmcli does not implement."""


class AcquireError(LlmcliError):
    """A checkpoint could not be found, fetched or converted."""


class TemplateError(LlmcliError):
    """A chat template does not compile, does not render or tries something unsafe."""


class TokenizerError(CheckpointError):
    """tokenizer.json is missing or unreadable, or a text cannot be turned into ids."""


class GenerationError(LlmcliError):
    """Generation cannot start or go on (prompt too long, non-finite logits)."""


class StorageError(LlmcliError):
    """A conversation's file is damaged, in use by another process, or cannot be written."""
