"""From what the user typed to prompt ids: raw text, or one chat message in the template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llmcli.errors import GenerationError, UsageError
from llmcli.text.chat_prompt import Message, build_chat_ids
from llmcli.text.chat_template import ChatTemplate
from llmcli.text.system_role import require_system_role
from llmcli.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRequest:
    """`mode` auto applies the chat template where the checkpoint has one.

    `bos` None follows the tokenizer's own rule; it and `parse_special` are for raw text only.
    """

    text: str
    system: str | None = None
    mode: Literal["auto", "raw"] = "auto"
    bos: bool | None = None
    parse_special: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """`text` is what was encoded; `is_chat` tells whether a template made it."""

    ids: tuple[int, ...]
    text: str
    is_chat: bool


def build_prompt(
    request: PromptRequest, tokenizer: Tokenizer, template: ChatTemplate | None
) -> Prompt:
    """Raises UsageError for options that the mode does not read, GenerationError for no ids.

    TemplateError is raised where the template refuses the messages or drops one in silence.
    """
    if template is None or request.mode == "raw":
        return _raw(request, tokenizer, has_template=template is not None)
    unread = [
        name
        for name, given in (
            ("--bos/--no-bos", request.bos is not None),
            ("--parse-special", request.parse_special),
        )
        if given
    ]
    if unread:
        raise UsageError(
            f"a chat prompt does not read {', '.join(unread)}: the template decides",
            hint="add --raw to continue the text as it is",
        )
    messages = [Message(role="user", content=request.text)]
    if request.system is not None:
        require_system_role(tokenizer, template)
        messages.insert(0, Message(role="system", content=request.system))
    chat = build_chat_ids(tokenizer, template, messages)
    return Prompt(tuple(chat.ids), chat.text, is_chat=True)


def _raw(request: PromptRequest, tokenizer: Tokenizer, *, has_template: bool) -> Prompt:
    if request.system is not None:
        why = "--raw leaves it out" if has_template else "this checkpoint has none"
        raise UsageError(
            f"--system needs a chat template, and {why}",
            hint="leave --raw out" if has_template else "put the text into the prompt",
        )
    ids = tokenizer.encode_raw(request.text, bos=request.bos, parse_special=request.parse_special)
    if not ids:
        raise GenerationError(
            "the prompt is empty, and this checkpoint begins no text by itself (it adds no BOS)",
            hint="give a prompt, or --bos where the tokenizer knows one",
        )
    return Prompt(tuple(ids), request.text, is_chat=False)
