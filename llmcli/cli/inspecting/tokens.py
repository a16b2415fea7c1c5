"""The tokens view: a row a token."""

from __future__ import annotations

from llmcli.cli.columns import folded, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.token_words import quoted
from llmcli.insight.token_table import TokenTable, cut
from llmcli.plurals import counted


def _compute(subject: Subject, _: Asked) -> TokenTable:
    prompt = subject.prompt
    return cut(
        subject.reader.tokenizer,
        prompt.ids,
        text=prompt.text,
        template=prompt.is_chat,
        context=subject.facts.spec.context,
    )


def _lines(found: TokenTable, width: int | None) -> list[str]:
    count = len(found.tokens)
    source = "the chat template's text" if found.template else "the text"
    if found.text_bytes:
        about = (
            f"{counted(count, 'token')} for {counted(found.text_bytes, 'byte')} of {source}: "
            f"{found.bytes_per_token:.2f} bytes a token"
        )
    else:
        about = f"The text is empty; in front of every text stands {counted(count, 'token')}"
    about += f", {found.specials} special" * bool(found.specials)
    about += f", {found.unknown} unknown" * bool(found.unknown)
    about += f". Vocabulary {found.vocabulary:,}, context {found.context:,}."
    rows = [
        (
            str(one.position),
            str(one.id),
            quoted(one.text),
            one.bytes,
            "" if one.piece == one.text else quoted(one.piece),
            "" if one.kind == "text" else one.kind,
        )
        for one in found.tokens
    ]
    header = ("at", "id", "text", "bytes", "in the vocabulary", "")
    return [*folded(about, width), "", *table(header, rows, width, left=(2, 3, 4, 5))]


DRAWING = Drawing(compute=_compute, lines=_lines)
