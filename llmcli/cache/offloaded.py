"""The offloaded store: keys and values lie in host memory, one layer at a time on the device."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from llmcli.cache.fixed import Fixed
from llmcli.cache.full import FullStore


class OffloadedStore(FullStore):
    """A growing store whose buffer is the host's: new keys go over, all that count come back."""

    def update(self, length: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        on_host = super().update(length, keys.to("cpu"), values.to("cpu"))
        return on_host[0].to(keys.device), on_host[1].to(values.device)

    @property
    def memory(self) -> tuple[Tensor, ...]:
        return ()

    def fixed(self, length: int, reach: int) -> Fixed | None:  # noqa: ARG002
        return None

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows.to("cpu"))

    def restore(self, contents: Mapping[str, Tensor]) -> None:
        super().restore({name: one.to("cpu") for name, one in contents.items()})

    def _empty(self) -> FullStore:
        return OffloadedStore()
