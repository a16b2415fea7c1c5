"""Reader: how a checkpoint reads a prompt, from its small files alone. Must not import torch."""

from __future__ import annotations

from pathlib import Path

from llmcli.engine.prompt import Prompt, PromptRequest, build_prompt
from llmcli.errors import CheckpointError, GenerationError, TemplateError, UsageError
from llmcli.plurals import counted
from llmcli.spec import DecoderSpec
from llmcli.text.chat_template import ChatTemplate, find_template, read_template
from llmcli.text.tokenizer import Tokenizer


class Reader:
    """Tokenizer and chat template; `template` is a file to use in place of the folder's own."""

    def __init__(self, folder: Path, *, template: Path | None = None) -> None:
        """Raises LlmcliError; what is wrong with the folder's own template waits for its use."""
        self._folder = folder
        self.tokenizer = Tokenizer.load(folder)
        self._error: TemplateError | None = None
        self.template: ChatTemplate | None
        if template is None:
            self.template, self._error = _own_template(folder)
        else:
            self.template = _given_template(template)

    def chat_template(self) -> ChatTemplate:
        """Raises TemplateError where it is damaged, UsageError where there is none at all."""
        if self._error is not None:
            raise self._error
        if self.template is None:
            raise UsageError(
                f"{self._folder.name} has no chat template, so it is no chat model",
                hint="--template FILE gives it one; `llmcli generate` continues a text without",
            )
        return self.template

    def prompt(self, request: PromptRequest, *, context: int, what: str = "the prompt") -> Prompt:
        """The prompt's ids, checked against the context; `what` it is called in errors."""
        if self._error is not None and request.mode != "raw":
            raise self._error
        prompt = build_prompt(request, self.tokenizer, self.template)
        if (over := len(prompt.ids) - context + 1) > 0:
            raise GenerationError(
                f"{what} has {len(prompt.ids)} tokens; the context holds {context}, "
                "and one is needed for the answer",
                hint=f"shorten {what} by at least {counted(over, 'token')}",
            )
        return prompt


def check_vocabulary(spec: DecoderSpec, tokenizer: Tokenizer) -> None:
    """Raise CheckpointError where the tokenizer has ids that the embedding has no row for."""
    if tokenizer.vocab_size > spec.vocab_size:
        raise CheckpointError(
            f"the tokenizer has ids up to {tokenizer.vocab_size - 1}, "
            f"the embedding only {spec.vocab_size} rows",
            hint="tokenizer and weights are of different models; fetch both again",
        )


def _given_template(path: Path) -> ChatTemplate:
    """A file that the user names: what is wrong with it is an error at once."""
    source = read_template(path)
    if not source.text.strip():
        raise TemplateError(
            f"{path} is empty, not a chat template", hint="give a jinja file that holds one"
        )
    return ChatTemplate(source)


def _own_template(folder: Path) -> tuple[ChatTemplate | None, TemplateError | None]:
    """The template, or what is wrong with it: raw text does not need it."""
    try:
        source = find_template(folder)
        return (ChatTemplate(source) if source else None), None
    except TemplateError as error:
        return None, error
