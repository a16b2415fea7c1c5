"""The table of views. A new view is a row here and a module of its name beside it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from llmcli.checkpoint.escape import printable
from llmcli.errors import UsageError

if TYPE_CHECKING:
    from llmcli.cli.inspecting.drawing import Drawing

# What must be there: a config alone, headers, a prompt without weights, the weights in memory,
# or these and a prompt.
Need = Literal["config", "headers", "text", "weights", "prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One row. `reads` names the fields of Asked, and of the bundles, that the view uses.

    Views that need weights read the loading options besides, those that need a prompt the
    prompting options, and those that generate the options of decoding. A view that `steps` reads
    --step, and with it the options of decoding and of the cache.
    """

    name: str
    help: str
    needs: Need
    reads: frozenset[str] = frozenset()
    generates: bool = False
    steps: bool = False


def _view(
    name: str,
    needs: Need,
    text: str,
    reads: str = "",
    *,
    generates: bool = False,
    steps: bool = False,
) -> View:
    return View(
        name=name,
        help=text,
        needs=needs,
        reads=frozenset(reads.split()),
        generates=generates,
        steps=steps,
    )


VIEWS: tuple[View, ...] = (
    _view("summary", "config", "family, sizes, kinds of parts, bytes, origin and licence"),
    _view("tree", "config", "modules with shapes and stored names", "layer depth search"),
    _view("params", "config", "how many parameters lie where"),
    _view("cache", "config", "what keys and values cost", "context dtype cache"),
    _view("masks", "config", "which key each query sees", "layer length"),
    _view(
        "plan",
        "config",
        "memory and speed to expect, before anything is read",
        "context dtype device threads kernels quantize kv_cache cache",
    ),
    _view("check", "headers", "do files, config, tokenizer and template fit", "values"),
    _view("tokens", "text", "how the text is cut: ids, bytes, special tokens"),
    _view(
        "trace",
        "prompt",
        "every step of a forward pass: shapes, what is added, time; or one decode step",
        steps=True,
    ),
    _view("attention", "prompt", "what every head attends to", "layer head top"),
    _view("lens", "prompt", "what each layer would say next", "last position"),
    _view("attribution", "prompt", "what each part adds to a token's logit", "position token top"),
    _view("positions", "config", "how places are told apart, and how far it reaches", "context"),
    _view("superposition", "weights", "how close to right angles directions are", "what layer"),
    _view(
        "neurons",
        "prompt",
        "the most active neurons of the MLPs, and which tokens they promote",
        "layer position top",
    ),
    _view(
        "ablate",
        "prompt",
        "what the model says without some of its parts, and which parts matter",
        "skip_layer zero_head zero_mlp scale_mlp sweep top max_new_tokens",
        generates=True,
    ),
    _view("neighbors", "weights", "the tokens nearest to one, by embedding", "token top"),
    _view("analogy", "weights", "a second token is to a first as what to a third", "token top"),
    _view("next", "prompt", "candidates, and how settings reshape them", "top", generates=True),
)

DEFAULT = "summary"


def find_views(names: Sequence[str]) -> list[View]:
    """The rows asked for, each once. Raises UsageError, naming the nearest, for an unknown one."""
    known = {view.name: view for view in VIEWS}
    for name in names:
        if name not in known:
            lower = name.strip().lower()
            begun = [one for one in known if lower and one.startswith(lower)]
            near = begun or difflib.get_close_matches(lower, known, n=1)
            raise UsageError(
                f"there is no view {printable(repr(name), 60)}",
                hint=(f"did you mean {near[0]}? " if near else "")
                + f"the views are {', '.join(known)}",
            )
    return [known[name] for name in dict.fromkeys(names or (DEFAULT,))]


def load_drawing(view: View) -> Drawing[Any]:
    """What computes and draws the view."""
    from importlib import import_module

    drawing: Drawing[Any] = import_module(f"llmcli.cli.inspecting.{view.name}").DRAWING
    return drawing
