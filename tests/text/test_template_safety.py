"""C6: a template cannot run code, nor burn hours or gigabytes."""

# ruff: noqa: E501  (each template is one line)
from __future__ import annotations

import copy
import threading
import time

import pytest
from text_builders import template

from llmcli.errors import TemplateError
from llmcli.text.chat_template import ChatTemplate, RenderLimits, TemplateSource

CHAT = [{"role": "user", "content": "x", "parts": ["a"]}]
GROW = "{%% set n = namespace(s=%s) %%}{%% for i in range(60) %%}%s{%% endfor %%}%s"
ESCAPES = [
    "{{ cycler.__init__.__globals__ }}",
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].parts.append(1) }}",
    "{{ messages[0].update({'role': 'z'}) }}",
    "{{ messages[0].clear() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ raise_exception.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{% set n = namespace(__class__=1) %}",
    "{{ range(10 ** 9) }}",
]
BOMBS = [
    "{{ 'a' * 10 ** 10 }}",
    "{{ [0] * 10 ** 10 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ '%99999999999d' % 1 }}",
    "{{ '%*d' % (99999999999, 1) }}",
    "{{ '{:99999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 99999999999) }}",
    "{{ '%99999999999d' | format(1) }}",
    "{{ 'a'.ljust(10 ** 11) }}",
    "{{ 'a' | center(10 ** 11) }}",
    "{{ 'a' | center(99999999999) }}",
    "{{ 'a\nb' | indent(10 ** 11) }}",
    "{{ [1] | tojson(indent=10 ** 11) }}",
    "{{ ('a' * 10 ** 6).replace('a', 'b' * 10 ** 6) }}",
    "{{ ('a' * 10 ** 6) | replace('a', 'b' * 10 ** 6) }}",
    "{{ (['a'] * 10 ** 5) | join('b' * 10 ** 6) }}",
    "{{ ('b' * 10 ** 6).join(['a'] * 10 ** 5) }}",
    "{{ ('\t' * 10 ** 6).expandtabs(10 ** 5) }}",
    GROW % ("'ab'", "{% set n.s = n.s ~ n.s %}", "{{ n.s }}"),
    GROW % ("'ab'", "{% set n.s = n.s + n.s %}", "{{ n.s }}"),
    GROW % ("'ab'", "{% set x %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = x %}", "{{ n.s }}"),
    GROW % ("9", "{% set n.s = n.s * n.s %}", "{{ n.s }}"),
    GROW % ("[1]", "{% set n.s = [n.s, n.s] %}", "{{ n.s }}"),
    GROW % ("[1]", "{% set n.s = [n.s, n.s] %}", "{{ n.s | tojson }}"),
    GROW % ("[1]", "{% set n.s = [n.s, n.s] %}", "{{ n.s | string | length }}"),
    GROW % ("[1]", "{% set n.s = [n.s, n.s] %}", "{{ (n.s ~ '') | length }}"),
    "{% for i in range(99999) %}{{ 'a' * 10 ** 6 }}{% endfor %}",
]
SMALL = RenderLimits(steps=20_000, seconds=5.0, size=1 << 20)


@pytest.mark.parametrize("text", ESCAPES)
def test_escape_is_refused_in_one_line_and_nothing_changes(text: str) -> None:
    before = copy.deepcopy(CHAT)
    with pytest.raises(TemplateError) as caught:
        template(text, "f.jinja").render(CHAT)
    assert caught.value.message.startswith("chat template f.jinja, line 1 ")
    assert caught.value.message.isprintable()
    assert before == CHAT


@pytest.mark.parametrize("text", BOMBS)
def test_growing_value_is_refused_before_it_grows(text: str) -> None:
    start = time.process_time()
    with pytest.raises(TemplateError, match="is not safe"):
        ChatTemplate(TemplateSource(text, "f.jinja"), limits=SMALL).render(CHAT)
    assert time.process_time() - start < 2.0


def test_billion_steps_stop_with_the_built_in_limits() -> None:
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    start = time.process_time()
    with pytest.raises(TemplateError, match="more than 2000000 loop steps"):
        template(loops).render(CHAT)
    assert time.process_time() - start < 10.0


@pytest.mark.parametrize(
    "text",
    [
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
        "{% for a in [[[[]]]] * 9 recursive %}{{ loop([a] * 9) }}{% endfor %}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{% for i in range(99999) %}{% call m() %}{% for j in range(99999) %}{% endfor %}{% endcall %}{% endfor %}",
    ],
)
def test_macros_and_recursive_loops_count_as_steps(text: str) -> None:
    with pytest.raises(TemplateError, match=r"loop steps|too deeply"):
        ChatTemplate(TemplateSource(text, "f.jinja"), limits=SMALL).render(CHAT)


def test_slow_steps_are_stopped_by_the_clock_in_any_thread() -> None:
    text = "{% for i in range(99999) %}{{ range(99999) | sum }}{% endfor %}"
    limits = RenderLimits(seconds=0.2)
    caught: list[TemplateError] = []

    def work() -> None:
        try:
            ChatTemplate(TemplateSource(text, "f.jinja"), limits=limits).render(CHAT)
        except TemplateError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert "more than 0.2 seconds" in caught[0].message


def test_steps_are_counted_anew_for_each_rendering() -> None:
    chat = template("{% for i in range(9000) %}.{% endfor %}")
    small = ChatTemplate(chat.source, limits=RenderLimits(steps=10_000))
    assert {small.render(CHAT) for _ in range(3)} == {"." * 9000}


def test_a_template_cannot_hide_the_counter() -> None:
    text = "{% set tick = 1 %}{% set environment = 2 %}{% for tick in range(99999) %}{% endfor %}"
    with pytest.raises(TemplateError, match="loop steps"):
        ChatTemplate(TemplateSource(text, "f.jinja"), limits=SMALL).render(CHAT)
