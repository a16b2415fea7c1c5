"""Whether a chat template shows the model a system message, or drops it in silence.

Must not know what the message says.
"""

from __future__ import annotations

from llmcli.errors import TemplateError
from llmcli.text.chat_prompt import Message
from llmcli.text.chat_template import ChatTemplate
from llmcli.text.tokenizer import Tokenizer

# Two texts that no template can take for each other.
_PROBES = ("Answer in verse.", "Count to seven.")


def require_system_role(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    """Raises TemplateError where the template refuses a system message, or leaves it out."""
    texts = {
        template.render(
            [Message(role="system", content=probe), Message(role="user", content="Hello.")],
            tokens=tokenizer.template_tokens,
        )
        for probe in _PROBES
    }
    if len(texts) == 1:
        raise TemplateError(
            f"chat template {template.source.origin} has no place for a system message: "
            "the model would never see it",
            hint="put its text into the first message, or give another template with --template",
        )
