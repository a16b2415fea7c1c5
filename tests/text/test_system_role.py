"""A template that drops the system message is told apart from one that shows it."""

from __future__ import annotations

import pytest
from text_builders import CHATML, template

from llmcli.errors import TemplateError
from llmcli.text.system_role import require_system_role
from llmcli.text.tokenizer import Tokenizer

USERS = "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% endif %}{% endfor %}"
IN_USER = (
    "{% if messages[0].role == 'system' %}{% set s = messages[0].content | trim | upper %}"
    "{% else %}{% set s = 'be good' %}{% endif %}{{ s }}" + USERS
)
REFUSING = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    + USERS
)


@pytest.mark.parametrize("text", [CHATML, IN_USER])
def test_taken(chatml: Tokenizer, text: str) -> None:
    require_system_role(chatml, template(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [(USERS, "has no place for a system message"), (REFUSING, "no system role")],
)
def test_not_taken(chatml: Tokenizer, text: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        require_system_role(chatml, template(text))
