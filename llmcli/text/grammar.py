"""A JSON schema, a regular expression or a Lark grammar, checked by the engine that will follow it.

The engine is llguidance, an optional package. Must not know tokenizers or models.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

from llmcli.errors import LlmcliError, UsageError

GrammarKind = Literal["json-schema", "regex", "grammar"]

# Room for indented JSON, but none for a small model to write blanks for ever.
_BLANK = r"\n[ \t]{0,24}| "


@dataclass(frozen=True, slots=True)
class Grammar:
    """`source` is the text as the user gave it; `engine_text` what the engine makes of it."""

    kind: GrammarKind
    source: str
    engine_text: str


def read_grammar(kind: GrammarKind, source: str, name: str) -> Grammar:
    """The grammar of a schema, pattern or Lark text; `name` is what messages call it.

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
                text = LLMatcher.grammar_from_json_schema(
                    _schema(source, name), {"whitespace_pattern": _BLANK}
                )
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
        raise UsageError(f"{name}: {one_line(complaint)}", hint=hints[kind])
    return Grammar(kind, source, text)


def after_a_space(grammar: Grammar) -> str:
    """The engine's text for the same language with one space in front."""
    own = grammar.engine_text.lstrip()
    parts = json.loads(own)["grammars"] if own.startswith("{") else [{"lark_grammar": own}]
    first, *rest = parts
    name = first.get("name") or "inner"
    outer = {"lark_grammar": f'start: " " @{name}'}
    return json.dumps({"grammars": [outer, {**first, "name": name}, *rest]})


def one_line(complaint: str) -> str:
    """What the engine says in many lines, with drawings, in one."""
    cause = re.search(r"^error: (.+)$", complaint, re.MULTILINE)
    return cause[1] if cause else complaint.strip().partition("\n")[0]


def _schema(source: str, name: str) -> str:
    try:
        json.loads(source)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is no JSON: {error}", hint="correct the file") from error
    return source
