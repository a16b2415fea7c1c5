"""Chat templates: messages in, one text out, byte for byte as transformers renders it.

`find_template` says where one lies; `ChatTemplate` compiles and renders it. Every failure is a
TemplateError of one line. Must not know tokenizers or ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType

from jinja2.exceptions import SecurityError, TemplateSyntaxError

from llmcli.errors import TemplateError
from llmcli.text.template_env import TemplateEnvironment, TemplateRefusalError
from llmcli.text.template_limits import RenderLimits
from llmcli.text.template_source import TemplateSource, find_template, read_template

__all__ = ["ChatTemplate", "RenderLimits", "TemplateSource", "find_template", "read_template"]

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
CODE_NAME = "<chat template>"


class ChatTemplate:
    """One compiled template. Rendering never changes what it is given."""

    def __init__(self, source: TemplateSource, *, limits: RenderLimits | None = None) -> None:
        self.source = source
        self._environment = TemplateEnvironment(limits or RenderLimits())
        try:
            code = self._environment.compile(source.text, filename=CODE_NAME)
            self._template = self._environment.template_class.from_code(
                self._environment, code, self._environment.make_globals(None)
            )
        except TemplateSyntaxError as error:
            raise self._error(f"does not compile: {error.message}", error.lineno) from error
        except (RecursionError, MemoryError, SyntaxError, ValueError) as error:
            raise self._error(f"does not compile: {_reason(error)}", None) from error

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool | None = True,
        tools: Sequence[object] | None = None,
        documents: Sequence[object] | None = None,
        extra: Mapping[str, object] | None = None,
        tokens: Mapping[str, str] | None = None,
    ) -> str:
        """The chat as text. `tokens` are names such as bos_token; `extra` the template's options.

        As in transformers, keys of a message whose value is None are left out. With
        `add_generation_prompt` None the template sees no such variable at all.
        """
        if not messages:
            raise TemplateError("the chat has no message, needed at least one")
        variables = {
            **{key: _plain(value) for key, value in {**(tokens or {}), **(extra or {})}.items()},
            "messages": [_message(message) for message in messages],
            "tools": _plain(tools),
            "documents": _plain(documents),
        }
        if add_generation_prompt is not None:
            variables["add_generation_prompt"] = add_generation_prompt
        self._environment.guard.start()
        try:
            return self._template.render(variables)
        except TemplateRefusalError as error:
            raise self._error(f"refuses this chat: {error}", None) from error
        except SecurityError as error:
            raise self._error(f"is not safe: {error}", _line(error.__traceback__)) from error
        except Exception as error:  # a template is a program and may fail in any way
            raise self._error(
                f"cannot render: {_reason(error)}", _line(error.__traceback__)
            ) from error

    def _error(self, what: str, line: int | None) -> TemplateError:
        place = self.source.origin if line is None else f"{self.source.origin}, line {line}"
        return TemplateError(
            f"chat template {_escaped(place)} {_escaped(what)}",
            hint="check the messages' roles and order, or give another template",
        )


def _message(message: Mapping[str, object]) -> dict[str, object]:
    plain = {str(key): _plain(value) for key, value in message.items() if value is not None}
    # Templates disagree on the name of a message's reasoning; fill the two that they read
    reasoning = next((plain[key] for key in REASONING_KEYS if plain.get(key) is not None), None)
    if reasoning is None:
        return plain
    return {"thinking": reasoning, **plain, "reasoning_content": reasoning}


def _plain(value: object) -> object:
    """A copy made of plain JSON types only: no object whose methods a template could call."""
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case Mapping():
            return {_plain(key): _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case tuple():
            return tuple(_plain(item) for item in value)
    return f"<{type(value).__name__}>"


def _line(traceback: TracebackType | None) -> int | None:
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == CODE_NAME:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it calls itself too deeply"
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    return str(error) or type(error).__name__


def _escaped(text: str) -> str:
    """One line without control characters, whatever the template put into it."""
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return shown if len(shown) <= 500 else shown[:500] + "..."
