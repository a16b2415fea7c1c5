"""C5: a template sees what transformers gives it, and its failures are one line with a place."""

# ruff: noqa: E501  (each template is one line)
from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from text_builders import CHATML, byte_level, save, template

import llmcli.text.template_env as template_env
from llmcli.errors import TemplateError

CHAT = [
    {"role": "system", "content": 'Be "short" & <kind>, don\'t é'},
    {"role": "user", "content": "  hi \n"},
    {"role": "assistant", "content": "yes", "reasoning": "why", "tool_calls": None},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "<ä> & 'b'"}}]
ONE_LINERS = {
    "chatml": CHATML,
    "date": "{{ strftime_now('%d %b %Y') }}",
    "break": "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
    "continue": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "unset": "[{{ tools }}|{{ documents }}|{{ nothing }}|{{ tools is none }}|{{ nothing is defined }}]",
    "tojson": "{{ messages | tojson }}{{ messages[0] | tojson(indent=2, ensure_ascii=true) }}",
    "blocks": "a\n{% if true %}\n  b\n  {% endif %}\nc {# note #}\n\n{{ 'd' }}\n\n",
    "missing keys": "{{ messages[2].tool_calls is defined }}{{ messages[0].none }}",
    "reasoning": "{{ messages[2].reasoning_content }}{{ messages[2].thinking }}",
    "namespace": "{% set n = namespace(a=1) %}{% for m in messages %}{% set n.a = n.a + 1 %}{% endfor %}{{ n.a }}",
    "dict": "{{ dict(a=1, b='x') | tojson }}{{ dict([['k', 2]]).k }}",
    "concat": "{{ 1 ~ 'a' ~ none ~ [1, 'b'] ~ messages[0].role ~ missing }}{% set x %}q{{ 1 }}{% endset %}{{ x ~ x }}",
    "loops": "{% for i in range(3) %}{% for j in 'ab' recursive %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{{ j }}{% else %}no{% endfor %}{% endfor %}",
    "else": "{% for i in [] %}x{% else %}none{% endfor %}{% for i in [1, 2, 3] if i > 1 %}{{ loop.length }}{{ loop.nextitem }}{% endfor %}",
    "macro": "{% macro f(a, b='z') %}{{ a }}{{ b }}{{ caller() if caller else '' }}{% endmacro %}{{ f(1) }}{% call f(2) %}in{% endcall %}",
    "filters": "{{ messages | map(attribute='role') | join(', ') }}{{ '%s-%05d' | format('a', 7) }}{{ '{:>4}'.format('x') }}{{ 'abc' | replace('b', 'X') | center(9) }}{{ 'a\nb' | indent(2) }}",
    "arithmetic": "{{ 2 ** 5 }}{{ 'ab' * 3 }}{{ [1] + [2] }}{{ '%d%%' % 5 }}{{ 7 % 3 }}{{ 2 * 3.5 }}",
    "variables": "{{ bos_token }}{{ eos_token }}{{ enable_thinking }}{{ pad_token is defined }}",
    "slices": "{{ messages[::-1][0].role }}{{ messages[1:] | length }}{{ messages[1].content | trim }}",
}


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory):
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("oracle")
    save(byte_level(), folder, bos_token="<|endoftext|>", eos_token="<|im_end|>")
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", ONE_LINERS)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
def test_bytes_equal_transformers(oracle, name: str, tools: list | None) -> None:
    for prompt in (False, True):
        expected = oracle.apply_chat_template(
            CHAT,
            chat_template=ONE_LINERS[name],
            tools=tools,
            add_generation_prompt=prompt,
            tokenize=False,
            enable_thinking=False,
        )
        shown = template(ONE_LINERS[name]).render(
            CHAT,
            tools=tools,
            add_generation_prompt=prompt,
            extra={"enable_thinking": False},
            tokens={"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"},
        )
        assert shown == expected


def test_clock_is_the_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Frozen(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2024, 2, 3, 4, 5)

    monkeypatch.setattr(template_env, "datetime", Frozen)
    assert template(ONE_LINERS["date"]).render(CHAT) == "03 Feb 2024"


def test_case_of_the_given_file(template_case: Mapping[str, object]) -> None:
    data = dict(template_case["data"])
    shown = template(str(template_case["chat_template"])).render(
        data.pop("messages"),
        add_generation_prompt=data.pop("add_generation_prompt", None),
        tools=data.pop("tools", None),
        documents=data.pop("documents", None),
        extra=data,
    )
    assert shown == template_case["target"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a\nb {{ 1 + 'a' }}", 2, "unsupported operand"),
        ("\n\n{{ missing.x.y }}", 3, "'missing' is undefined"),
        ("\n{% for x in 3 %}{% endfor %}", 2, "not iterable"),
        ("\n{% if %}", 2, "does not compile"),
        ("{% include 'x' %}", 1, "no loader"),
        ("\n{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", 2, "too deeply"),
        ("{{ messages | nofilter }}", 1, "nofilter"),
    ],
)
def test_failures_name_the_file_and_the_line(text: str, line: int, words: str) -> None:
    with pytest.raises(TemplateError, match=words) as caught:
        template(text, "some/folder/chat_template.jinja").render(CHAT)
    assert f"some/folder/chat_template.jinja, line {line} " in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_a_refusing_template_is_quoted_without_control_characters() -> None:
    text = "{{ raise_exception('System role\x1b[31m not\\nsupported') }}"
    with pytest.raises(TemplateError) as caught:
        template(text).render(CHAT)
    assert "System role\\x1b[31m not\\nsupported" in caught.value.message
    assert caught.value.message.isprintable()


def test_empty_chat_is_refused() -> None:
    with pytest.raises(TemplateError, match="no message"):
        template(CHATML).render([])


def test_rendering_changes_nothing_and_passes_plain_data_only() -> None:
    class Text(str):
        def leak(self) -> str:
            return "leaked"

    chat = [{"role": "user", "content": Text("x"), "thing": Path("y")}]
    before = json.dumps(CHAT)
    shown = template("{{ messages[0].content.leak }}|{{ messages[0].thing }}").render(chat)
    assert shown.startswith("|<")
    template("{% set m = messages[0] %}{% set x = dict(m, role='z') %}{{ x.role }}").render(CHAT)
    assert json.dumps(CHAT) == before
