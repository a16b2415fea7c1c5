"""C8: which template a folder means, in agreement with transformers where it has a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from text_builders import byte_level, save

from llmcli.errors import TemplateError
from llmcli.text.chat_template import ChatTemplate, TemplateSource, find_template, read_template

CHAT = [{"role": "user", "content": "hi"}]
NAMED = [{"name": "tool_use", "template": "tool"}, {"name": "default", "template": "plain"}]
EXTRA = "additional_chat_templates/tool_use.jinja"


def folder_with(base: Path, config: object = None, files: dict[str, bytes] | None = None) -> Path:
    settings = {} if config is None else {"chat_template": config}
    save(byte_level(), base, **settings)
    for name, data in (files or {}).items():
        path = base / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return base


@pytest.mark.parametrize(
    ("config", "files", "expected"),
    [
        (None, {"chat_template.jinja": b"file"}, "file"),
        ("config", {}, "config"),
        ("config", {"chat_template.jinja": b"file"}, "file"),
        (NAMED, {}, "plain"),
        (NAMED, {"chat_template.jinja": b"file"}, "file"),
        (None, {"chat_template.jinja": b"a\r\nb\r\n{% if 1 %}\r\nc{% endif %}\r\n"}, "a\nb\nc"),
        ("a\r\nb\r\n", {}, "a\nb"),
        (None, {"chat_template.jinja": b"file", EXTRA: b"tool"}, "file"),
        ("config", {"chat_template.jinja": b"file", EXTRA: b"tool"}, "file"),
        ("naïve 日本".encode().decode(), {}, "naïve 日本"),
    ],
)
def test_the_template_transformers_would_take(
    tmp_path: Path, config: object, files: dict[str, bytes], expected: str
) -> None:
    from transformers import AutoTokenizer

    folder = folder_with(tmp_path, config, files)
    source = find_template(folder)
    assert source is not None
    assert ChatTemplate(source).render(CHAT) == expected
    oracle = AutoTokenizer.from_pretrained(folder)
    assert oracle.apply_chat_template(CHAT, tokenize=False) == expected


def test_none_where_there_is_none(tmp_path: Path) -> None:
    assert find_template(folder_with(tmp_path / "a")) is None
    assert find_template(folder_with(tmp_path / "b", "")) is None
    assert find_template(folder_with(tmp_path / "c", None, {"chat_template.jinja": b""})) is None
    null = folder_with(tmp_path / "d")
    (null / "tokenizer_config.json").write_text('{"chat_template": null}')
    assert find_template(null) is None
    assert find_template(tmp_path / "nowhere") is None


def test_choice_by_name(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, NAMED)
    source = find_template(folder, name="tool_use")
    assert source is not None
    assert source == TemplateSource(
        "tool", f"{folder / 'tokenizer_config.json'} (tool_use)", "tool_use"
    )
    with pytest.raises(TemplateError, match="'rag'; it has: default, tool_use"):
        find_template(folder, name="rag")
    extra = folder_with(tmp_path / "x", "config", {EXTRA: b"tool"})
    assert find_template(extra, name="tool_use") is not None
    with pytest.raises(TemplateError, match="'default'; it has: tool_use"):
        find_template(extra)


def test_processor_file_comes_last(tmp_path: Path) -> None:
    legacy = {"chat_template.json": json.dumps({"chat_template": "legacy"}).encode()}
    only = find_template(folder_with(tmp_path / "a", None, legacy))
    assert only is not None
    assert only.text == "legacy"
    both = find_template(folder_with(tmp_path / "b", "config", legacy))
    assert both is not None
    assert both.text == "config"


@pytest.mark.parametrize("value", [3, [1], [{"name": "default"}], True])
def test_wrong_types_are_named(tmp_path: Path, value: object) -> None:
    with pytest.raises(TemplateError, match="chat_template holds a") as caught:
        find_template(folder_with(tmp_path, value))
    assert "tokenizer_config.json" in caught.value.message


def test_a_named_file_must_be_readable_text(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_bytes(b"x\r\ny")
    assert read_template(tmp_path / "t.jinja").text == "x\ny"
    (tmp_path / "bad.jinja").write_bytes(b"\xff")
    for name in ("bad.jinja", "missing.jinja"):
        with pytest.raises(TemplateError, match=name):
            read_template(tmp_path / name)
