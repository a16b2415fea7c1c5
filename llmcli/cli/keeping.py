"""--save-cache and --load-cache: a prompt's keys and values kept for another process.

Must not know tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from llmcli.checkpoint.escape import printable
from llmcli.cli import terminal
from llmcli.cli.files import check_target
from llmcli.cli.hashing import hashed
from llmcli.cli.options import MACHINE, Loading, value_option
from llmcli.errors import UsageError
from llmcli.plurals import counted

if TYPE_CHECKING:
    from llmcli.acquire.resolve import Resolved
    from llmcli.engine.engine import Engine
    from llmcli.engine.session import Session

_KINDS = ("growing", "ring", "static", "auto")

SaveCache = Annotated[
    Path | None,
    value_option(
        "--save-cache",
        metavar="FILE",
        help="Write keys and values of the prompt and its answer into FILE at the end.",
        panel=MACHINE,
    ),
]
LoadCache = Annotated[
    Path | None,
    value_option(
        "--load-cache",
        metavar="FILE",
        help="Begin with those of FILE, as far as the prompt is the same.",
        panel=MACHINE,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Files of keys and values; the same file may be loaded and saved."""

    save_cache: SaveCache = None
    load_cache: LoadCache = None

    @property
    def asked(self) -> bool:
        return self.save_cache is not None or self.load_cache is not None

    def check(self, loading: Loading) -> None:
        """Raise UsageError for what can be told before anything is loaded."""
        if not self.asked:
            return
        if loading.cache_kind not in _KINDS:
            raise UsageError(
                f"a cache of kind {loading.cache_kind} cannot be saved or loaded",
                hint="use --cache growing, ring or static",
            )
        if self.load_cache is not None and not self.load_cache.is_file():
            raise UsageError(
                f"--load-cache {printable(str(self.load_cache))} is not a file",
                hint="make one with --save-cache",
            )
        if self.save_cache is not None:
            check_target(
                "--save-cache", self.save_cache, only="llmcli_prompt_cache", what="prompt cache"
            )

    def refuse(self, what: str) -> None:
        """Raise UsageError where `what` was asked for as well."""
        if self.asked:
            name = "--save-cache" if self.save_cache is not None else "--load-cache"
            raise UsageError(f"{what} does not read {name}", hint="leave one of them out")


@dataclass(frozen=True, slots=True)
class Kept:
    """A session that begins from a file, ends in one, or both; `checkpoint` is its fingerprint."""

    session: Session
    checkpoint: str
    keeping: Keeping

    def save(self, engine: Engine) -> None:
        """After the run. Raises LlmcliError where it cannot be written."""
        from llmcli.engine.prompt_cache import save

        path = self.keeping.save_cache
        if path is not None:
            count = save(path, self.session, self.checkpoint, engine.loaded.decoder)
            terminal.note(
                f"wrote {printable(str(path))}: keys and values of {counted(count, 'token')}"
            )


def open_kept(engine: Engine, resolved: Resolved, loading: Loading, keeping: Keeping) -> Kept:
    """The session, filled from the file as far as it was made for this very run."""
    from llmcli.engine.identity import fingerprint
    from llmcli.engine.prompt_cache import check_kind, load

    session = engine.session(loading.cache_kind)
    check_kind(session)
    checkpoint = fingerprint(hashed(resolved))
    if keeping.load_cache is not None:
        why = load(keeping.load_cache, session, checkpoint, engine.loaded.decoder)
        if why is not None:
            shown = printable(str(keeping.load_cache))
            terminal.note(f"warning: {shown} is not used: {why}; the prompt is computed anew")
    return Kept(session, checkpoint, keeping)
