"""Kept conversations: every change is on disk at once, one writer a file, all in one folder."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from llmcli import whole_file
from llmcli.chat import keeper
from llmcli.chat.shelf import Opened, Shelf, read_record
from llmcli.errors import StorageError, UsageError
from tests.chat.talk import say, users


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "home" / "chats")


def on_disk(opened: Opened) -> str:
    return users(read_record(opened.keeper.path).conversation)


def kept(shelf: Shelf, name: str, *said: str) -> Path:
    opened = shelf.new(model="m", name=name)
    say(opened.conversation, *said)
    opened.keeper.close()
    return opened.keeper.path


def test_every_change_is_on_disk_at_once(shelf: Shelf) -> None:
    opened = shelf.new(model="m", system="S")
    talk = opened.conversation
    talk.set_system("T")
    assert not shelf.folder.exists()
    for so_far in ("a", "ab", "abc"):
        say(talk, so_far[-1])
        assert on_disk(opened) == so_far
    talk.undo()
    assert on_disk(opened) == "ab"
    talk.fork("x")
    assert read_record(opened.keeper.path).conversation.branches == talk.branches
    assert opened.keeper.path.read_bytes().count(b"\n") == 1 + len(talk.events)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_only_the_owner_may_read(shelf: Shelf) -> None:
    path = kept(shelf, "a", "x")
    for one, mode in ((path, 0o600), (shelf.folder, 0o700), (shelf.folder / ".locks", 0o700)):
        assert stat.S_IMODE(one.stat().st_mode) == mode


def test_resume(shelf: Shelf) -> None:
    first, second = kept(shelf, "first", "a", "b"), kept(shelf, "second", "c")
    os.utime(second, (1, 1))
    opened = shelf.resume()
    assert (opened.keeper.name, users(opened.conversation), opened.notice) == ("first", "ab", None)
    before = first.read_bytes()
    say(opened.conversation, "d")
    assert first.read_bytes().startswith(before)
    opened.keeper.close()
    again = shelf.resume("first")
    assert users(again.conversation) == "abd"
    assert [one.name for one in shelf.listing()] == ["first", "second"]
    assert (shelf.listing()[0].turns, shelf.listing()[0].first) == (3, "a")


def test_a_torn_line_is_cut_off_before_anything_is_added(shelf: Shelf) -> None:
    path = kept(shelf, "a", "x", "y")
    path.write_bytes(path.read_bytes()[:-9])
    opened = shelf.resume("a")
    assert "cut short" in (opened.notice or "")
    say(opened.conversation, "z")
    assert on_disk(opened) == users(opened.conversation) == "xz"


def test_a_line_that_lacks_only_its_end(shelf: Shelf) -> None:
    path = kept(shelf, "a", "x", "y")
    path.write_bytes(path.read_bytes()[:-1])
    opened = shelf.resume("a")
    assert opened.notice is None
    say(opened.conversation, "z")
    assert on_disk(opened) == "xyz"


def test_one_writer_a_file(shelf: Shelf) -> None:
    kept(shelf, "a", "x")
    opened = shelf.resume("a")
    program = (
        "import sys; from pathlib import Path\n"
        "from llmcli.chat.shelf import Shelf\n"
        "from llmcli.errors import StorageError\n"
        "try: Shelf(Path(sys.argv[1])).resume('a')\n"
        "except StorageError as error: print(error.message)\n"
    )
    command = [sys.executable, "-c", program, str(shelf.folder)]
    other = subprocess.run(command, capture_output=True, text=True, check=True)
    assert other.stdout == "the conversation a is open in another process\n"
    with pytest.raises(StorageError, match="open in another process"):
        shelf.resume("a")
    opened.keeper.close()
    opened.keeper.close()
    other = subprocess.run(command, capture_output=True, text=True, check=True)
    assert other.stdout == ""
    assert users(shelf.resume("a").conversation) == "x"


def test_two_that_begin_in_the_same_second(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = shelf.new(model="m"), shelf.new(model="m")
    two.keeper.name = one.keeper.name
    say(one.conversation, "a")
    say(two.conversation, "b")
    assert two.keeper.name == f"{one.keeper.name}-2"
    assert (on_disk(one), on_disk(two)) == ("a", "b")
    one.keeper.close()
    two.keeper.close()
    three = shelf.new(model="m")
    three.keeper.name = one.keeper.name
    say(three.conversation, "c")
    assert three.keeper.name == f"{one.keeper.name}-3"
    assert on_disk(one) == "a"


def full_disk(file: int, data: bytes) -> None:
    os.write(file, data[: len(data) // 2])
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupted(file: int, data: bytes) -> None:
    os.write(file, data)
    raise KeyboardInterrupt


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    ("write", "error"), [(full_disk, StorageError), (interrupted, KeyboardInterrupt)]
)
def test_what_failed_is_made_up_for(
    shelf: Shelf,
    monkeypatch: pytest.MonkeyPatch,
    write: object,
    error: type[BaseException],
    begun: bool,
) -> None:
    opened = shelf.new(model="m", name="a")
    if begun:
        say(opened.conversation, "x")
    with monkeypatch.context() as patch:
        patch.setattr(whole_file, "write_all", write)
        patch.setattr(keeper, "write_all", write)
        with pytest.raises(error):
            say(opened.conversation, "y")
        with pytest.raises(error):
            say(opened.conversation, "z")
    said = ("x" if begun else "") + "yz"
    assert users(opened.conversation) == said
    say(opened.conversation, "!")
    assert on_disk(opened) == f"{said}!"
    assert [one.name for one in shelf.folder.iterdir() if "partial" in one.name] == []


def test_a_file_that_vanished_is_written_anew(shelf: Shelf) -> None:
    opened = shelf.new(model="m", name="a")
    say(opened.conversation, "x")
    opened.keeper.path.unlink()
    say(opened.conversation, "y")
    assert on_disk(opened) == "xy"


@pytest.mark.parametrize("how", ["longer", "shorter", "replaced"])
def test_a_file_that_another_program_changed(shelf: Shelf, how: str) -> None:
    opened = shelf.new(model="m", name="a")
    say(opened.conversation, "x")
    path = opened.keeper.path
    data = path.read_bytes()
    if how == "replaced":
        path.rename(path.with_suffix(".old"))
    path.write_bytes({"longer": data + b"?\n", "shorter": data[:-3], "replaced": data}[how])
    spoiled = path.read_bytes()
    with pytest.raises(StorageError, match="changed by another program"):
        say(opened.conversation, "y")
    assert path.read_bytes() == spoiled


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc/x", "a\\b", ".a", "a.", "con", "NUL.txt", "a\n", "-a"],
)
def test_no_name_leads_out_of_the_folder(shelf: Shelf, name: str) -> None:
    for use in (lambda: shelf.resume(name), lambda: shelf.new(model="m", name=name)):
        with pytest.raises(UsageError, match="cannot name a conversation"):
            use()
    assert not shelf.folder.exists()


def test_names_in_any_script(shelf: Shelf) -> None:
    kept(shelf, "日記-1.b", "x")
    assert users(shelf.resume("日記-1.b").conversation) == "x"


def test_none_to_resume(shelf: Shelf) -> None:
    with pytest.raises(UsageError, match="there is no conversation in"):
        shelf.resume()
    kept(shelf, "a", "x")
    with pytest.raises(UsageError) as caught:
        shelf.resume("b")
    assert caught.value.hint == "the last ones are a"
    with pytest.raises(UsageError, match="a conversation a already"):
        shelf.new(model="m", name="a")


def test_a_damaged_one_is_listed_and_refused(shelf: Shelf) -> None:
    path = kept(shelf, "a", "x", "y")
    path.write_bytes(path.read_bytes().replace(b'"parent":null', b'"parent":7'))
    assert shelf.listing()[0].problem == f"{path}, line 2: it follows turn 7, and there are 0 turns"
    with pytest.raises(StorageError, match="line 2"):
        shelf.resume("a")
    # The lock was let go
    path.write_bytes(path.read_bytes().replace(b'"parent":7', b'"parent":null'))
    assert users(shelf.resume("a").conversation) == "xy"


def test_load_goes_on_in_a_copy(shelf: Shelf, tmp_path: Path) -> None:
    path = kept(shelf, "a", "x", "y")
    copy = tmp_path / "copy.jsonl"
    path.rename(copy)
    before = copy.read_bytes()
    opened = shelf.load(copy)
    assert shelf.listing() == []
    say(opened.conversation, "z")
    assert (on_disk(opened), copy.read_bytes()) == ("xyz", before)
    with pytest.raises(StorageError, match="cannot be read"):
        shelf.load(tmp_path / "none")
    with pytest.raises(StorageError, match="is not a file"):
        shelf.load(tmp_path)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    opened = Shelf(tmp_path / "file" / "chats").new(model="m")
    with pytest.raises(StorageError, match="cannot be written: Not a directory"):
        say(opened.conversation, "x")
    assert users(opened.conversation) == "x"
