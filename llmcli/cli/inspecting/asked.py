"""The options that say what a view shows; each view reads only those that its row names."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from llmcli.cli import options
from llmcli.cli.inspecting.table import DEFAULT, VIEWS
from llmcli.cli.options import value_option, whole_option
from llmcli.cli.options.decoding import Decoding
from llmcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from llmcli.cli.inspecting.table import View

SHOWN = "What a view shows"
EDITS = "What ablate changes"
SOURCE = "What is looked at"

ConfigFile = Annotated[
    Path | None,
    value_option(
        "--config",
        metavar="FILE",
        help="Look at a config.json alone, without weights.",
        panel=SOURCE,
    ),
]
PresetName = Annotated[
    str | None,
    value_option(
        "--preset",
        metavar="NAME",
        help="A known model's config: gpt3-175b, phi-3-mini, llama-2-7b, llama-3-8b, gpt2 or "
        "transformer-base.",
        panel=SOURCE,
    ),
]
Views = Annotated[
    list[str] | None,
    value_option(
        "--view",
        metavar="NAME",
        help=f"What to show, one or several of {', '.join(view.name for view in VIEWS)} "
        f"[default: {DEFAULT}].",
        panel=SHOWN,
    ),
]
HtmlFile = Annotated[
    Path | None,
    value_option(
        "--html", metavar="FILE", help="Write the views as one page too.", panel=options.OUTPUT
    ),
]
SvgFile = Annotated[
    Path | None,
    value_option(
        "--svg", metavar="FILE", help="Write the view's picture too.", panel=options.OUTPUT
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """None (or False) where the command line says nothing."""

    layer: Annotated[
        int | None, whole_option("--layer", "N", "One layer only, counted from 0.", SHOWN)
    ] = None
    depth: Annotated[
        int | None, whole_option("--depth", "N", "Modules down to depth N only.", SHOWN)
    ] = None
    search: Annotated[
        str | None,
        value_option(
            "--search", metavar="TEXT", help="Modules with TEXT in a name only.", panel=SHOWN
        ),
    ] = None
    context: Annotated[
        list[int] | None,
        whole_option(
            "--context", "N", "Sizes for a text of N tokens; may be given several times.", SHOWN
        ),
    ] = None
    length: Annotated[
        int | None, whole_option("--length", "N", "Draw N tokens [default: 12].", SHOWN)
    ] = None
    values: Annotated[
        bool,
        options.flag(
            "--values", help="Read every weight too, and look for non-finite ones.", panel=SHOWN
        ),
    ] = False
    head: Annotated[
        int | None,
        whole_option("--head", "N", "One head of --layer in detail, counted from 0.", SHOWN),
    ] = None
    position: Annotated[
        int | None,
        whole_option(
            "--position", "N", "The prompt's token N, counted from 0 [default: the last].", SHOWN
        ),
    ] = None
    last: Annotated[
        int | None, whole_option("--last", "N", "The last N tokens [default: 12].", SHOWN)
    ] = None
    token: Annotated[
        list[str] | None,
        value_option(
            "--token",
            metavar="TEXT|#ID",
            help="A token, as text or by its id; analogy takes three.",
            panel=SHOWN,
        ),
    ] = None
    top: Annotated[int | None, whole_option("--top", "N", "So many rows [default: 10].", SHOWN)] = (
        None
    )
    step: Annotated[
        int | None,
        whole_option(
            "--step",
            "N",
            "What decode step N computes, with the KV cache and without [default: no step].",
            SHOWN,
        ),
    ] = None
    what: Annotated[
        str | None,
        value_option(
            "--what",
            metavar="NAME",
            help="Directions: embedding, unembedding, mlp-in or mlp-out [default: embedding].",
            panel=SHOWN,
        ),
    ] = None
    skip_layer: Annotated[
        list[int] | None,
        whole_option("--skip-layer", "N", "Leave layer N out; may be repeated.", EDITS),
    ] = None
    zero_head: Annotated[
        list[str] | None,
        value_option(
            "--zero-head",
            metavar="N.H",
            help="Head H of layer N adds nothing; may be repeated.",
            panel=EDITS,
        ),
    ] = None
    zero_mlp: Annotated[
        list[int] | None,
        whole_option("--zero-mlp", "N", "The MLP of layer N adds nothing; repeatable.", EDITS),
    ] = None
    scale_mlp: Annotated[
        list[str] | None,
        value_option(
            "--scale-mlp",
            metavar="N=FACTOR",
            help="What the MLP of layer N adds, times FACTOR; may be repeated.",
            panel=EDITS,
        ),
    ] = None
    sweep: Annotated[
        str | None,
        value_option(
            "--sweep",
            metavar="heads|layers|mlps",
            help="Take each out alone, and rank them by the loss on the prompt.",
            panel=EDITS,
        ),
    ] = None


def refuse_unread(views: Sequence[View], *bundles: object, **single: object) -> None:
    """Raise UsageError for an option that was given and that no chosen view reads.

    The names of fields are those of the options.
    """
    given = {name for name, value in single.items() if value is not None}
    for bundle in bundles:
        given |= {one.name for one in fields(bundle) if _is_given(getattr(bundle, one.name), one)}  # type: ignore[arg-type]
    stepping = "step" in given
    readable = {name for view in views for name in readable_by(view, stepping=stepping)}
    for name in sorted(given - readable):
        shown = _option(name)
        able = [
            view.name + " (with --step)" * (name not in readable_by(view, stepping=False))
            for view in VIEWS
            if name in readable_by(view)
        ]
        raise UsageError(
            f"{_named(views)} not read {shown}",
            hint=f"{shown} is read by the view{'s' * (len(able) > 1)} {', '.join(able)}"
            if able
            else f"leave {shown} out",
        )


# What a view reads because of what it needs.
_LOADING = frozenset({"device", "dtype", "threads", "quantize"})
_PROMPTING = frozenset({"prompt", "file", *(one.name for one in fields(options.Prompting))})
# How many tokens and texts are made follows from the view; one model and one prompt are shown.
_DECODING = frozenset(one.name for one in fields(Decoding)) - {
    "max_new_tokens",
    "num_return",
    "draft_model",
    "negative_prompt",
}


def readable_by(view: View, *, stepping: bool = True) -> frozenset[str]:
    """The names of all options that mean something to the view.

    `stepping` tells that --step is given, without which some mean nothing.
    """
    read = view.reads | {"model"}
    if view.needs in ("weights", "prompt"):
        read |= _LOADING
    if view.steps:
        read |= {"step"} | (_DECODING | {"kv_cache", "cache"} if stepping else frozenset())
    if view.generates:
        read |= _DECODING
    return read | _PROMPTING if view.needs in ("text", "prompt") else read


def _is_given(value: object, option: Field[Any]) -> bool:
    """A --no- switch is given, although it is False."""
    return value != option.default and value != []


def _option(name: str) -> str:
    known = {"prompt": "a prompt", "kv_cache": "--kv-cache/--no-kv-cache", "bos": "--bos/--no-bos"}
    return known.get(name, f"--{name.replace('_', '-')}")


def _named(views: Iterable[View]) -> str:
    names = [view.name for view in views]
    return f"view {names[0]} does" if len(names) == 1 else f"the views {', '.join(names)} do"
