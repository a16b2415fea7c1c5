"""A JSON schema, a regular expression or a Lark grammar, checked by the engine that will follow it.

The engine is llguidance, an optional package. Must not know tokenizers or models.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from llmcli.errors import LlmcliError, UsageError

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

GrammarKind = Literal["json-schema", "regex", "grammar"]

# Room for indented JSON, but none for a small model to write blanks for ever.
_BLANK = r"\n[ \t]{0,24}| "


@dataclass(frozen=True, slots=True)
class Grammar:
    """`name` is the pattern itself or the file's; `engine_text` is what the engine follows."""

    kind: GrammarKind
    name: str
    engine_text: str


def read_grammar(kind: GrammarKind, source: str, name: str) -> Grammar:
    """The grammar of a schema, pattern or Lark text; `name` is the pattern or the file's name.

    Raises UsageError with the engine's own words where it cannot be followed exactly, and
    LlmcliError where the engine is not installed.
    """
    try:
        from llguidance import LLMatcher
    except ImportError as error:
        raise LlmcliError(
            f"--{kind} needs the package llguidance, which is not installed",
            hint="pip install 'llmcli[constrained]'",
        ) from error
    try:
        match kind:
            case "json-schema":
                text = LLMatcher.grammar_from_json_schema(source, _json_options(source, name))
            case "regex":
                text = LLMatcher.grammar_from_regex(source)
            case "grammar":
                text = LLMatcher.grammar_from_lark(source)
        complaint = LLMatcher.validate_grammar(text)
    except ValueError as error:
        complaint = str(error)
    if complaint:
        hints = {
            "json-schema": "leave out what the engine cannot guarantee",
            "regex": "the syntax is that of Rust's regex: no look-around, no back-references",
            "grammar": "the syntax is Lark's, as llguidance reads it: `start: ...`",
        }
        raise UsageError(f"--{kind} {name}: {one_line(complaint)}", hint=hints[kind])
    return Grammar(kind, name, text)


def after_spaces(grammar: Grammar, count: int) -> str:
    """The engine's text for the same language with so many spaces in front."""
    own = grammar.engine_text.lstrip()
    parts = json.loads(own)["grammars"] if own.startswith("{") else [{"lark_grammar": own}]
    first, *rest = parts
    name = first.get("name") or "inner"
    outer = {"lark_grammar": f'start: "{" " * count}" @{name}'}
    return json.dumps({"grammars": [outer, {**first, "name": name}, *rest]})


def one_line(complaint: str) -> str:
    """What the engine says in many lines, with drawings, in one."""
    cause = re.search(r"^error: (.+)$", complaint, re.MULTILINE)
    return cause[1] if cause else complaint.strip().partition("\n")[0]


def _json_options(source: str, name: str) -> JsonCompileOptions | None:
    try:
        schema = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"--json-schema {name} is no JSON: {error}", hint="correct the file"
        ) from error
    # A schema that is true or false takes no options.
    return {"whitespace_pattern": _BLANK} if isinstance(schema, dict) else None
