"""Ctrl-C at every stage, on a terminal: text kept, exit 130, modes restored (G2)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llmcli.cli import dispatch, interrupts
from llmcli.errors import AcquireError
from tests.acquire import hub_server
from tests.acquire.hub_server import Repo
from tests.cli import pauses
from tests.cli.drive import PATIENCE, Child
from tests.puppet import Script, make_puppet

CTRL_C = b"\x03"
EMOJI = "🙂".encode()


def say(folder: Path, script: Script, **how: object) -> str:
    return str(make_puppet(folder / "model", script, **how).folder)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["generate", "chat"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_bar_gives_the_cursor_back(tmp_path: Path, command: str, number: int) -> None:
    template = "{{ messages[-1].content }}"
    args = [command, "-m", say(tmp_path, ["ok"], chat_template=template)]
    with Child([*args, *(["hi"] * (command == "generate"))], setup=pauses.under_a_bar) as child:
        child.wait_for(b"PAUSED")
        assert b"\x1b[?25l" in child.seen
        assert not child.terminal_restored
        child.signal(number)
        assert child.wait() == 128 + number
        assert child.terminal_restored


@pytest.mark.parametrize("presses", [CTRL_C, CTRL_C * 3])
@pytest.mark.parametrize(
    ("pause", "script", "kept"),
    [
        (pauses.while_loading, ["ok"], None),
        (pauses.in_prefill, ["ok"], ""),
        (pauses.before_the_third_token, ["one ", "two ", "three"], "one two "),
        # Two of four bytes of a character are held back; one replacement stands for each run.
        (pauses.before_the_fourth_token, ["a", EMOJI, "b"], "a�"),
    ],
)
def test_at_every_stage(
    tmp_path: Path,
    pause: Callable[[], None],
    script: Script,
    kept: str | None,
    presses: bytes,
) -> None:
    args = ["generate", "-m", say(tmp_path, script), "hi"]
    with Child(args, stdout="pipe", setup=pause) as child:
        child.wait_for(b"PAUSED")
        child.type(presses)
        assert child.wait() == 130
        assert child.out.decode() == ("" if kept is None else kept + "\n")
        # Nothing but what the terminal itself echoed for the keys, and an empty line.
        rest = child.seen.replace(b"PAUSED", b"").replace(b"^C", b"").replace(b"\x1b[?25h", b"")
        assert rest.strip() == b""
        assert child.terminal_restored


def test_text_held_for_a_stop_string_is_kept(tmp_path: Path) -> None:
    model = say(tmp_path, ["one ", "two", " three"])
    args = ["generate", "-m", model, "hi", "--stop", "two or more"]
    with Child(args, stdout="pipe", setup=pauses.before_the_third_token) as child:
        child.wait_for(b"PAUSED")
        child.type(CTRL_C)
        assert (child.wait(), child.out) == (130, b"one two\n")


def test_in_the_middle_of_a_fast_reply(tmp_path: Path) -> None:
    model = say(tmp_path, ["a", "b"], ends=False, max_positions=100_000)
    args = ["generate", "-m", model, "hi", "-n", "90000", "-v"]
    with Child(args, stdout="pipe", stderr="pipe") as child:
        child.wait_for(b"ab" * 20, in_="out")
        child.interrupt()
        assert child.wait() == 130
        text = child.out.decode()
        assert text == ("ab" * len(text))[: len(text) - 1] + "\n"
        # As many as were counted, neither lost nor doubled.
        assert f"decode: {len(text) - 1} tokens" in child.err.decode()
        assert b"finish reason: interrupted" in child.err


def test_with_json_the_object_is_whole(tmp_path: Path) -> None:
    args = ["generate", "-m", say(tmp_path, ["one ", "two ", "three"]), "hi", "--json"]
    with Child(args, stdout="pipe", setup=pauses.before_the_third_token) as child:
        child.wait_for(b"PAUSED")
        child.type(CTRL_C)
        assert child.wait() == 130
        told = json.loads(child.out)
        assert (told["text"], told["finish_reason"]) == ("one two ", "interrupted")
        assert told["cache_bytes"] > 0


def test_a_press_that_was_swallowed_still_counts(tmp_path: Path) -> None:
    args = ["generate", "-m", say(tmp_path, ["one ", "two ", "three"]), "hi"]
    with Child(args, stdout="pipe", setup=pauses.swallowing) as child:
        child.wait_for(b"PAUSED")
        child.type(CTRL_C)
        assert (child.wait(), child.out) == (130, b"one two \n")


def test_a_second_press_ends_what_is_deaf(tmp_path: Path) -> None:
    args = ["generate", "-m", say(tmp_path, ["one"]), "hi"]
    with Child(args, stdout="pipe", setup=pauses.deaf) as child:
        child.wait_for(b"PAUSED")
        child.type(CTRL_C)
        child.wait_for(b"SWALLOWED")
        time.sleep(1.1)
        child.type(CTRL_C)
        assert child.wait() == 130
        assert child.terminal_restored


def test_while_the_prompt_is_awaited(tmp_path: Path) -> None:
    args = ["generate", "-m", say(tmp_path, ["one"]), "-"]
    with Child(args, stdin="terminal", stdout="pipe") as child:
        child.wait_for(b"Ctrl-D")
        child.type(CTRL_C)
        assert (child.wait(), child.out) == (130, b"")
        assert b"Traceback" not in child.seen
        assert child.terminal_restored


def test_while_a_checkpoint_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: hub_server._Handler, repo: Repo, name: str, *, body: bool) -> None:
        if not (body and name.endswith(".safetensors")):
            real(self, repo, name, body=body)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(repo.files[name])))
        self.end_headers()
        self.wfile.write(repo.files[name][:1000])
        self.wfile.flush()
        self.state.log.append("HALF")
        time.sleep(PATIENCE)

    real = hub_server._Handler.file
    monkeypatch.setattr(hub_server._Handler, "file", half)
    made = make_puppet(tmp_path / "model", ["one"]).folder
    with hub_server.serving() as hub:
        hub.repos["own/er"] = Repo({file.name: file.read_bytes() for file in made.iterdir()})
        env = {
            "HF_ENDPOINT": hub.url,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(tmp_path / "hf"),
            "NO_PROXY": "*",
        }
        with Child(["pull", "own/er"], stdout="pipe", env=env) as child:
            child.wait_until(lambda: "HALF" in hub.log)
            child.type(CTRL_C)
            assert (child.wait(), child.out) == (130, b"")
            assert b"Traceback" not in child.seen
            assert b"own/er" in child.seen
            assert child.terminal_restored
    assert not (tmp_path / "home" / "weights" / "own" / "er").exists()


def test_an_import_that_swallows_the_press(tmp_path: Path) -> None:
    args = ["generate", "-m", say(tmp_path, ["one"]), "hi"]
    with Child(args, stdout="pipe", setup=pauses.swallowed_while_importing) as child:
        child.wait_for(b"PAUSED")
        child.type(CTRL_C)
        assert (child.wait(), child.out) == (130, b"")
        assert b"SWALLOWED" not in child.seen
        assert child.terminal_restored


def test_while_torch_is_imported(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "llmcli", "generate", "hi"]
    process = subprocess.Popen(
        [*command, "-m", say(tmp_path, ["one"])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if b" torch." in line:
            break
    process.send_signal(2)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err


@pytest.mark.parametrize("error", [AcquireError("cut"), OSError("cut"), RuntimeError("cut")])
def test_a_press_that_a_library_made_an_error_of(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def swallowed(_args: object) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error from None
        return 0

    before = signal.getsignal(signal.SIGINT)
    terminated = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(dispatch, "_invoke", swallowed)
    interrupts.install(before_exit=lambda: None)
    try:
        assert dispatch.run([]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
        interrupts.install(before_exit=lambda: None)
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, terminated)
