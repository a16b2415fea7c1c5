"""Files for others: whole or not at all, and Markdown that no text can break out of."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcli import whole_file
from llmcli.chat.conversation import Conversation
from llmcli.chat.export import export, save, to_markdown
from llmcli.chat.shelf import Shelf, read_record
from llmcli.errors import StorageError, UsageError
from tests.chat.talk import begun, said, say


@pytest.fixture
def talk() -> Conversation:
    made = Conversation(begun(system="S"))
    say(made, "a", "b")
    return made


def test_markdown(talk: Conversation) -> None:
    talk.add(said("```\n# x", "~~~`````\r</div>", ended="cut", model="m`x\n# y"), parent=1)
    assert to_markdown(talk) == (
        "# Conversation of `2026-01-02T03:04:05+00:00`\n\n"
        "## System\n\n```text\nS\n```\n\n"
        "## 1. User\n\n```text\na\n```\n\n"
        "## 1. `m`, `greedy`\n\n```text\nA\n```\n\n"
        "## 3. User\n\n````text\n```\n# x\n````\n\n"
        "## 3. `` m`x # y ``, `greedy`, cut by the user\n\n"
        "``````text\n~~~`````\r</div>\n``````\n"
    )


def test_a_saved_file_holds_the_whole_tree(talk: Conversation, tmp_path: Path) -> None:
    talk.undo()
    save(talk, tmp_path / "f")
    assert read_record(tmp_path / "f").conversation.tree() == talk.tree()
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


def test_no_file_is_lost(talk: Conversation, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("mine")
    for write in (save, export):
        with pytest.raises(UsageError, match="there is a file"):
            write(talk, path)
        with pytest.raises(UsageError, match="is not a file"):
            write(talk, tmp_path, replace=True)
        with pytest.raises(StorageError, match="cannot be written"):
            write(talk, tmp_path / "none" / "f")
    assert path.read_text() == "mine"
    export(talk, path, replace=True)
    assert path.read_text() == to_markdown(talk)


def test_whole_or_not_at_all(
    talk: Conversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "f").write_text("old")
    monkeypatch.setattr(whole_file, "write_all", fail)
    with pytest.raises(StorageError, match="No space left"):
        save(talk, tmp_path / "f", replace=True)
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]


def test_who_reads_meanwhile_sees_one_whole_file(talk: Conversation, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    with path.open() as reader:
        save(talk, path, replace=True)
        assert reader.read() == "old"


def test_not_over_the_file_in_use(tmp_path: Path) -> None:
    opened = Shelf(tmp_path).new(model="m", name="a")
    say(opened.conversation, "x")
    for write in (save, export):
        with pytest.raises(UsageError, match="kept already"):
            write(opened.conversation, tmp_path / "a.jsonl", replace=True, keeper=opened.keeper)


def test_through_a_link_the_file_itself(talk: Conversation, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "f")
    export(talk, tmp_path / "link", replace=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "f").read_text() == to_markdown(talk)
