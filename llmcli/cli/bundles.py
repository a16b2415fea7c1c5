"""Bundles: options that several commands take together, declared once as a dataclass.

A command asks for a bundle by annotating a parameter with it; on the command line its fields
stand in the parameter's place. Must not know which options there are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def unbundled(command: Callable[..., int]) -> Callable[..., int]:
    """The command with every bundle among its parameters spread out, for the parser to see."""
    hints = get_type_hints(command, include_extras=True)
    bundles: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(command)
    def spread(**given: Any) -> int:
        made = {
            name: kind(**{one.name: given.pop(one.name) for one in fields(kind)})
            for name, kind in bundles.items()
        }
        return command(**made, **given)

    found: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in bundles:
            found += _options(bundles[name])
        else:
            found.append(parameter.replace(annotation=hints[name]))
    # All of them have defaults and are given by name, so their order is only that of the help.
    found = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in found]
    spread.__signature__ = inspect.Signature(found, return_annotation=int)  # type: ignore[attr-defined]
    spread.__annotations__ = {one.name: one.annotation for one in found} | {"return": int}
    return spread


def _options(bundle: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(bundle, include_extras=True)
    return [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=hints[one.name],
        )
        for one in fields(bundle)
    ]
