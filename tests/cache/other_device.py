"""A device other than the CPU, of which this machine may have none: its tensors compute on the CPU
and mix with the CPU's no more than those of an accelerator do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from llmcli.model import Decoder

# The only device besides the CPU that every build of torch can name in slices and checks.
OTHER = torch.device("meta")

_aten = torch.ops.aten
# What an accelerator does with tensors of two devices: copies, and places that stand on the CPU.
_MAY_MIX = {_aten.copy_.default, _aten.index.Tensor, _aten.index_put_.default}


class Elsewhere(Tensor):
    """A tensor of the other device; `here` holds its numbers."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> Elsewhere:
        made: Elsewhere = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=OTHER,
        )
        made.here = here
        return made

    def tolist(self) -> Any:
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Callable[..., Any],
        _types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return _run(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    """What is made on the other device, or brought there, is a tensor of it."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        _types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return _run(func, args, kwargs or {})


class _Lists(TorchFunctionMode):
    """torch.tensor makes a tensor of the other device without asking the mode below."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        _types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if func is torch.tensor and named.get("device") == OTHER:
            del named["device"]
            return func(*args, **named).to(OTHER)
        return func(*args, **named)


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
    there = any(isinstance(one, Elsewhere) for one in tensors)
    mixed = there and any(not isinstance(one, Elsewhere) and one.ndim for one in tensors)
    if mixed and func not in _MAY_MIX:
        raise RuntimeError(f"{func} got tensors of two devices")
    device = kwargs.get("device")
    if device is not None:
        there = torch.device(device) == OTHER
        kwargs = {**kwargs, "device": torch.device("cpu")}
    given, named = tree_map(lambda x: x.here if isinstance(x, Elsewhere) else x, (args, kwargs))
    out = func(*given, **named)
    if func._schema.is_mutable and not func._schema.name.endswith("out"):
        return args[0]
    return tree_map(lambda x: Elsewhere(x) if there and isinstance(x, Tensor) else x, out)


@contextmanager
def other_device() -> Iterator[torch.device]:
    """Within it, the device that it gives can be used as any."""
    # Tensors made in inference mode cannot be wrapped.
    with mock.patch("torch.inference_mode", torch.no_grad), _Mode(), _Lists():
        yield OTHER


def moved(decoder: Decoder) -> Decoder:
    """The decoder, with its parameters on the other device; within `other_device()`."""
    for module in decoder.modules():
        for name, own in module.named_parameters(recurse=False):
            there = own.detach().to(OTHER)
            module.register_parameter(name, nn.Parameter(there, requires_grad=False))
    return decoder
