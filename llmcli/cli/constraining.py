"""The options that hold the text to a grammar, and the reading of their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from llmcli.cli.options import text_option, value_option
from llmcli.cli.prompt_input import read_text
from llmcli.errors import UsageError
from llmcli.text.grammar import Grammar, GrammarKind, read_grammar

CONSTRAINTS = "What the text must be"

JsonSchema = Annotated[
    Path | None,
    value_option(
        "--json-schema",
        metavar="FILE",
        help="JSON that fits the schema in FILE.",
        panel=CONSTRAINTS,
    ),
]
Regex = Annotated[
    str | None,
    text_option("--regex", "PATTERN", "All of it a match of PATTERN.", CONSTRAINTS),
]
GrammarFile = Annotated[
    Path | None,
    value_option(
        "--grammar",
        metavar="FILE",
        help="A text of the Lark grammar in FILE.",
        panel=CONSTRAINTS,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraining:
    """At most one grammar that the text must keep to."""

    json_schema: JsonSchema = None
    regex: Regex = None
    grammar: GrammarFile = None

    def read(self) -> Grammar | None:
        """The grammar, read and checked by its engine.

        Raises UsageError for two of them, or one that cannot be followed.
        """
        given: list[tuple[GrammarKind, str | Path | None]] = [
            ("json-schema", self.json_schema),
            ("regex", self.regex),
            ("grammar", self.grammar),
        ]
        asked = [(kind, value) for kind, value in given if value is not None]
        if not asked:
            return None
        if len(asked) > 1:
            raise UsageError(
                f"--{asked[0][0]} and --{asked[1][0]} contradict each other",
                hint="give one of them; a Lark grammar can hold schemas and patterns",
            )
        ((kind, value),) = asked
        if isinstance(value, str):
            return read_grammar(kind, value, value)
        return read_grammar(kind, read_text(value, f"--{kind} {value}"), str(value))
