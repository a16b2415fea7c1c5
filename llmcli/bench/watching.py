"""Which forwards of a decoder ran module by module, and which as a whole: seen, not guessed."""

from __future__ import annotations

from types import TracebackType

from torch import nn
from torch.utils.hooks import RemovableHandle

from llmcli.model import Decoder


class Watch:
    """Within it, `whole` gains for each forward whether it ran without the layers' modules.

    A compiled step calls none, nor does one that a device has recorded. The hooks are plain ones,
    which do not keep a decoder from either.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.whole: list[bool] = []
        self._decoder = decoder
        self._modules = False
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> Watch:
        first: nn.Module = next(iter(self._decoder.layers), self._decoder.norm)
        self._hooks = [
            first.register_forward_hook(self._layer),
            self._decoder.norm.register_forward_hook(self._end),
        ]
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        for hook in self._hooks:
            hook.remove()

    def _layer(self, *_: object) -> None:
        self._modules = True

    def _end(self, *_: object) -> None:
        self.whole.append(not self._modules)
        self._modules = False
