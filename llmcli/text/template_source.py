"""Where a folder keeps its chat template, and which of several is meant.

Must not know jinja, messages or tokenizers. Without a template there is none: no default format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmcli.errors import TemplateError
from llmcli.text.tokenizer_files import read_json

DEFAULT = "default"
EXTRA_FOLDER = "additional_chat_templates"


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """The text of one template, and what to call it in messages (a file, and a name in it)."""

    text: str
    origin: str
    name: str = DEFAULT


def find_template(folder: Path, *, name: str | None = None) -> TemplateSource | None:
    """The template called `name` ("default" if None), or None if the folder has none at all.

    chat_template.jinja and additional_chat_templates/*.jinja win over tokenizer_config.json, as
    in transformers; chat_template.json comes last. A null or empty template counts as absent.
    """
    templates = (
        _from_files(folder)
        or _from_json(folder / "tokenizer_config.json")
        or _from_json(folder / "chat_template.json")
    )
    if not templates and name is None:
        return None
    wanted = name or DEFAULT
    if wanted not in templates:
        names = ", ".join(sorted(templates)) or "none"
        raise TemplateError(
            f"{folder} has no chat template named {wanted!r}; it has: {names}",
            hint="choose one of these names" if templates else "give a template file instead",
        )
    return templates[wanted]


def read_template(path: Path) -> TemplateSource:
    """A template file that the user names."""
    try:
        # Text mode turns CRLF into LF, as transformers reads it
        return TemplateSource(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(
            f"{path} cannot be read as a chat template: {' '.join(str(error).split())}",
            hint="it must be a UTF-8 jinja file",
        ) from error


def _from_files(folder: Path) -> dict[str, TemplateSource]:
    found: dict[str, TemplateSource] = {}
    main = folder / "chat_template.jinja"
    files = {DEFAULT: main} if main.is_file() else {}
    for path in sorted((folder / EXTRA_FOLDER).glob("*.jinja")):
        files[path.name.removesuffix(".jinja")] = path
    for name, path in files.items():
        source = read_template(path)
        if source.text:
            found[name] = TemplateSource(source.text, source.origin, name)
    return found


def _from_json(path: Path) -> dict[str, TemplateSource]:
    value = read_json(path).get("chat_template")
    if isinstance(value, str):
        value = [{"name": DEFAULT, "template": value}]
    elif isinstance(value, Mapping):
        value = [{"name": name, "template": text} for name, text in value.items()]
    elif value is None:
        value = []
    found: dict[str, TemplateSource] = {}
    if not isinstance(value, list):
        raise _wrong(path, value)
    for entry in value:
        match entry:
            case {"name": str(name), "template": str(text)}:
                origin = str(path) if name == DEFAULT else f"{path} ({name})"
                if text:
                    found[name] = TemplateSource(text, origin, name)
            case _:
                raise _wrong(path, entry)
    return found


def _wrong(path: Path, value: object) -> TemplateError:
    return TemplateError(
        f"{path}: chat_template holds a {type(value).__name__}, "
        "needed a string or a list of {name, template}",
        hint="give a template file instead",
    )
