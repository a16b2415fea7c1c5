"""A conversation to prompt ids, so that only the template's own control tokens become control ids.

Text inside a message that spells a control token stays text, wherever the template puts it.
Must not know how templates are found, or what a model does with the ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from llmcli.errors import TemplateError, UsageError
from llmcli.text.chat_template import ChatTemplate
from llmcli.text.content_marks import (
    Content,
    Marks,
    brackets,
    find_regions,
    map_content,
    opened_by,
    pick_marks,
    strings_of,
)
from llmcli.text.rendered import Rendered
from llmcli.text.thought_marks import thought_ids
from llmcli.text.tokenizer import Tokenizer

ROLE = re.compile(r"[A-Za-z0-9_.-]+")


class Message(TypedDict):
    """One turn. The role is "system", "user", "assistant" or what else the template knows."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """The ids to feed, and the rendered text they stand for."""

    ids: list[int]
    text: str


@dataclass(frozen=True, slots=True)
class _Job:
    """One call's fixed parts."""

    tokenizer: Tokenizer
    template: ChatTemplate
    add_generation_prompt: bool | None
    special: frozenset[int]  # control tokens in everyone's text
    turn: frozenset[int]  # not flagged special, but the template writes them
    thought: frozenset[int]  # what may stand around the reasoning of an earlier reply

    def render(self, content: Content) -> str:
        return self.template.render(
            content.messages,
            add_generation_prompt=self.add_generation_prompt,
            tools=content.tools,
            documents=content.documents,
            extra=content.extra,
            tokens=self.tokenizer.template_tokens,
        )

    def controls(self, *, assistant: bool) -> frozenset[int]:
        # An earlier reply may hold marks such as </think> that templates look for and cut at
        return self.special - self.thought if assistant else self.special | self.turn

    def texts(self, *, assistant: bool) -> list[str]:
        added = self.tokenizer.added_tokens
        return [added[token].content for token in self.controls(assistant=assistant)]


def build_chat_ids(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, object]],
    *,
    add_generation_prompt: bool | None = True,
    tools: Sequence[object] | None = None,
    documents: Sequence[object] | None = None,
    extra: Mapping[str, object] | None = None,
) -> ChatPrompt:
    """Render the conversation and encode it; no BOS is added beside what the template writes.

    If no message holds anything like a control token, the ids are those of one plain encoding.
    Otherwise the chat is rendered again with marks around each content, which show where the
    contents lie in the text, and control tokens found there are encoded as text. A template
    that reacts to the marks gets placeholders in place of the control texts instead.
    """
    for message in messages:
        role = message.get("role")
        if not isinstance(role, str) or not ROLE.fullmatch(role):
            raise UsageError(
                f"a message has the role {role!r}, needed a word such as 'user'",
                hint="use system, user or assistant",
            )
    content = Content(messages, tools, documents, extra)
    added = tokenizer.added_tokens
    source = template.source.text
    job = _Job(
        tokenizer,
        template,
        add_generation_prompt,
        special=tokenizer.special_ids,
        turn=frozenset(
            token
            for token, entry in added.items()
            if not entry.special and entry.content.strip() and entry.content in source
        ),
        thought=thought_ids(tokenizer),
    )
    text = job.render(content)
    rendered = Rendered(text)
    if _suspicious(content, job.texts(assistant=False)):
        marks = pick_marks([source, text, *strings_of(content)], places=len(added))
        rendered = _by_marks(job, content, text, marks) or _by_masks(job, content, marks)
    return ChatPrompt(tokenizer.encode_rendered(rendered), rendered.text)


def _suspicious(content: Content, controls: Sequence[str]) -> bool:
    """Whether any content may hold, or help to form, a control token."""
    edges = {char for text in controls for char in (text[:1], text[-1:])}
    longest = max(map(len, controls), default=0)
    for string in strings_of(content):
        core = string.strip()
        if not edges.isdisjoint(core):
            return True
        if 0 < len(core) <= longest and any(core in text for text in controls):
            return True
    return False


def _by_marks(job: _Job, content: Content, text: str, marks: Marks) -> Rendered | None:
    """Find the contents in `text` by rendering them between marks; None if that fails."""
    try:
        marked = job.render(map_content(content, brackets(marks)))
    except TemplateError:
        return None
    regions = find_regions(marked, marks)
    if regions is None or marked.translate(marks.deletions) != text:
        return None
    literals = []
    at = 0
    for start, end, token in job.tokenizer.find_added(text):
        while at < len(regions) and regions[at].end <= start:
            at += 1
        over = regions[at] if at < len(regions) else None
        if over and over.start < end and token in job.controls(assistant=over.assistant):
            literals.append((start, end))
    return Rendered(text, tuple(literals))


def _by_masks(job: _Job, content: Content, marks: Marks) -> Rendered:
    """Render with one character in place of each control text, and put the texts back."""
    places: dict[str, str] = {}

    def mask(string: str, assistant: bool, is_body: bool) -> str:  # noqa: ARG001
        texts = sorted(job.texts(assistant=assistant), key=len, reverse=True)
        if not texts:
            return string

        def place(match: re.Match[str]) -> str:
            return places.setdefault(match[0], marks.place(len(places)))

        return re.sub("|".join(map(re.escape, texts)), place, string)

    masked = map_content(content, mask)
    text = job.render(masked)
    # Marks part each content from the template, so no control token can form across a border
    parted = job.render(map_content(masked, brackets(marks)))
    every = job.controls(assistant=False)
    found = [token for *_, token in job.tokenizer.find_added(text) if token in every]
    apart = [match for match in job.tokenizer.find_added(parted) if match[2] in every]
    inside = [
        token
        for start, _, token in apart
        for assistant in (False, True)
        if opened_by(parted[:start], marks) == marks.opening(assistant)
        and token in job.controls(assistant=assistant)
    ]
    whole = find_regions(parted, marks) is not None
    if found != [token for *_, token in apart] or (whole and inside):
        raise TemplateError(
            "a message's text is made into a control token by the chat template",
            hint="take the parts of control tokens, such as '<|', out of the message",
        )
    originals = {char: original for original, char in places.items()}
    parts: list[str] = []
    literals: list[tuple[int, int]] = []
    length = 0
    for char in text:
        part = originals.get(char, char)
        if char in originals:
            literals.append((length, length + len(part)))
        parts.append(part)
        length += len(part)
    return Rendered("".join(parts), tuple(literals))
