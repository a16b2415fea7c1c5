"""Subject: the checkpoint that is looked at. Weights and prompt come only when a view asks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from llmcli.checkpoint.directory import ModelDir, read_json
from llmcli.checkpoint.escape import printable
from llmcli.cli.options import Loading, Prompting
from llmcli.cli.prompt_input import is_piped, read_prompt
from llmcli.cli.running import find_model, load_found
from llmcli.engine.flags import Flags
from llmcli.errors import UsageError
from llmcli.insight.facts import Facts, Source, config_facts, folder_facts

if TYPE_CHECKING:
    from llmcli.acquire.resolve import Resolved
    from llmcli.cli.inspecting.table import View
    from llmcli.engine.engine import Engine
    from llmcli.engine.prompt import Prompt
    from llmcli.engine.reader import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSource:
    """What the command line says about the prompt."""

    argument: str | None = None
    file: Path | None = None
    prompting: Prompting

    @property
    def there(self) -> bool:
        return self.argument is not None or self.file is not None or is_piped()

    def read(self) -> str:
        return read_prompt(self.argument, self.file)


class Subject:
    """One checkpoint folder, or (`resolved` None) a bare config, and maybe a prompt."""

    def __init__(
        self,
        facts: Facts,
        loading: Loading,
        prompt: PromptSource,
        resolved: Resolved | None = None,
        *,
        flags: Flags | None = None,
    ) -> None:
        self.facts = facts
        self.loading = loading
        self.flags = flags or Flags()
        self._prompt_source = prompt
        self._resolved = resolved

    @property
    def folder(self) -> Path | None:
        return None if self._resolved is None else self._resolved.path

    def check(self, view: View) -> None:
        """Raise UsageError where the view needs what is not there; nothing is loaded for it."""
        if view.needs != "config" and self._resolved is None:
            what = {"headers": "a checkpoint's files", "text": "a tokenizer"}.get(
                view.needs, "weights"
            )
            raise UsageError(
                f"view {view.name} needs {what}, but {self.facts.name} is only a config",
                hint="give a checkpoint with --model instead",
            )
        if view.needs in ("text", "prompt") and not self._prompt_source.there:
            raise UsageError(
                f"view {view.name} needs a prompt, and none was given",
                hint=f'llmcli inspect-layers --view {view.name} "Once upon a time"',
            )

    @cached_property
    def text(self) -> str:
        """The prompt as it was given."""
        return self._prompt_source.read()

    @cached_property
    def engine(self) -> Engine:
        """The loaded checkpoint, for views that need weights."""
        assert self._resolved is not None, "check() comes first"
        template = self._prompt_source.prompting.template
        return load_found(self._resolved, self.loading, template=template)

    @cached_property
    def reader(self) -> Reader:
        """How the checkpoint reads a prompt; no weights are needed."""
        assert self._resolved is not None, "check() comes first"
        from llmcli.engine.reader import Reader

        return Reader(self._resolved.path, template=self._prompt_source.prompting.template)

    @cached_property
    def prompt(self) -> Prompt:
        """The prompt's ids, checked against the context, for views that need a prompt."""
        from llmcli.engine.prompt import PromptRequest

        prompting = self._prompt_source.prompting
        return self.reader.prompt(
            PromptRequest(
                text=self.text,
                system=prompting.system,
                mode="raw" if prompting.raw else "auto",
                bos=prompting.bos,
                parse_special=prompting.parse_special,
            ),
            context=self.facts.spec.context,
        )

    def token_text(self, id_: int) -> str:
        """A readable text for one id."""
        return self.reader.tokenizer.token_text(id_)


def find_subject(
    *,
    config: Path | None,
    preset: str | None,
    loading: Loading,
    prompt: PromptSource,
    flags: Flags,
) -> Subject:
    """The checkpoint of --config, --preset or --model; at most one of them may be given."""
    given = {"--config": config, "--preset": preset, "--model": loading.model}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise UsageError(
            f"{' and '.join(named)} name two things to look at", hint=f"give {named[0]} alone"
        )
    if preset is not None:
        from llmcli.insight.presets import preset_facts

        return Subject(preset_facts(preset), loading, prompt, flags=flags)
    if config is not None:
        return Subject(_config_file(config), loading, prompt, flags=flags)
    resolved = find_model(loading.model)
    facts = folder_facts(resolved.name, ModelDir.open(resolved.path), _source(resolved))
    return Subject(facts, loading, prompt, resolved, flags=flags)


def _config_file(path: Path) -> Facts:
    if path.is_dir():
        raise UsageError(
            f"--config {printable(str(path))} is a folder, not a config.json",
            hint=f"give --model {printable(str(path))} for the whole checkpoint",
        )
    if not path.exists():
        raise UsageError(
            f"--config {printable(str(path))} does not exist", hint="give a config.json's path"
        )
    return config_facts(printable(str(path)), read_json(path))


def _source(resolved: Resolved) -> Source:
    from llmcli.acquire.catalog import catalog
    from llmcli.acquire.origin import read_origin

    origin, entry = read_origin(resolved.path), catalog().get(resolved.name)
    licence = origin.licence if origin else ""
    return Source(
        origin=origin.text if origin else resolved.source,
        licence=printable(licence) or (entry.licence if entry else None),
    )
