"""Fixtures for the text room, and the cases of a template file named by an environment variable.

LLMCLI_TEMPLATE_CASES=FILE points at a JSON list of {name, chat_template, data, target}.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from text_builders import (
    STORIES,
    byte_level,
    metaspace,
    odd_decoders,
    save,
    word_piece,
    word_suffix,
)

from llmcli.text.tokenizer import Tokenizer


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "template_case" in metafunc.fixturenames:
        file = os.environ.get("LLMCLI_TEMPLATE_CASES")
        cases = json.loads(Path(file).read_text(encoding="utf-8")) if file else []
        metafunc.parametrize("template_case", cases, ids=[case["name"] for case in cases])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # An empty parameter list would be reported as a skip; without a file there is no such test
    items[:] = [item for item in items if "[NOTSET]" not in item.name]


@pytest.fixture(scope="session")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    base = tmp_path_factory.mktemp("tokenizers")
    backends = {
        "byte_level": byte_level(),
        "metaspace first": metaspace("first"),
        "metaspace always": metaspace("always"),
        "word_piece": word_piece(),
        "word_suffix": word_suffix(),
        **odd_decoders(),
    }
    made = {name: Tokenizer.load(save(one, base / name)) for name, one in backends.items()}
    return {**made, "stories": Tokenizer.load(STORIES)}


@pytest.fixture(scope="session")
def stories() -> Tokenizer:
    return Tokenizer.load(STORIES)


@pytest.fixture(scope="session")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("chatml")
    save(byte_level(), folder, eos_token="<|im_end|>", bos_token="<|endoftext|>")
    return Tokenizer.load(folder)
