"""Places where a child that chats stops once and says so, to be interrupted just there.

Functions of a module, since they travel to the child by name.
"""

from __future__ import annotations

import os
import select
import time
from typing import Any

# In slices, as a signal that comes just before a long sleep would wait for its end.
_SLICE, _SLICES = 0.05, 12_000


def _halt() -> None:
    os.write(2, b"PAUSED")
    for _ in range(_SLICES):
        time.sleep(_SLICE)
    os._exit(99)


def until_keys_wait() -> None:
    """In the first reply, until keys have been typed; then it goes on."""
    from llmcli.model import Decoder

    real, calls = Decoder.forward, [0]

    def forward(self: Decoder, *args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == 1:
            os.write(2, b"PAUSED")
            select.select([0], [], [])
        return real(self, *args, **options)

    Decoder.forward = forward  # type: ignore[method-assign]


def in_prefill() -> None:
    _before_pass(1)


def before_the_third_token() -> None:
    _before_pass(3)


def before_the_fourth_token() -> None:
    _before_pass(4)


def before_the_third_token_of_two_replies() -> None:
    _before_pass(3, 6)


def while_a_second_model_loads() -> None:
    from llmcli.checkpoint.tensors import TensorFiles

    real, calls = TensorFiles.parameters, [0]

    def parameters(self: TensorFiles, *args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            _halt()
        return real(self, *args, **options)

    TensorFiles.parameters = parameters  # type: ignore[method-assign]


def while_it_is_saved() -> None:
    """Where a press has to wait: the turn is being written."""
    from llmcli.chat.conversation import Conversation
    from llmcli.cli import interrupts

    real, calls = Conversation.add, [0]

    def add(self: Conversation, *args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == 1:
            os.write(2, b"PAUSED")
            for _ in range(_SLICES):
                if interrupts.pending():
                    break
                time.sleep(_SLICE)
        return real(self, *args, **options)

    Conversation.add = add  # type: ignore[method-assign]


def one_pass_gives_nan() -> None:
    """The second pass of the first reply gives no numbers."""
    import torch

    from llmcli.model import Decoder

    real, calls = Decoder.forward, [0]

    def forward(self: Decoder, *args: Any, **options: Any) -> Any:
        calls[0] += 1
        out = real(self, *args, **options)
        return torch.full_like(out, float("nan")) if calls[0] == 2 else out

    Decoder.forward = forward  # type: ignore[method-assign]


def _before_pass(*numbers: int) -> None:
    from llmcli.model import Decoder

    real, calls = Decoder.forward, [0]

    def forward(self: Decoder, *args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] in numbers:
            _halt()
        return real(self, *args, **options)

    Decoder.forward = forward  # type: ignore[method-assign]
