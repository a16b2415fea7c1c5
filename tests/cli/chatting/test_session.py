"""Options of `llmcli chat`, what is refused at once, and a context that fills up (C8, G1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmcli.cli.chatting import session
from llmcli.cli.chatting.setting_keys import find_key, setting_keys
from llmcli.cli.options.decoding import Decoding
from tests.cli.chatting.talking import TEMPLATE, puppet
from tests.cli.conftest import Invoke

SCRIPTS = {"": ["ok"], "1": ["one"], "2": ["two"]}


@pytest.fixture
def model(tmp_path: Path) -> str:
    return puppet(tmp_path, SCRIPTS)


def names() -> list[str]:
    return sorted(file.stem for file in Path("../home/chats").glob("*.jsonl"))


def test_a_base_model_says_so_and_takes_a_template(invoke: Invoke, tmp_path: Path) -> None:
    base = puppet(tmp_path, SCRIPTS, chat_template=None)
    refused = invoke("chat", "-m", base, stdin=b"say 1")
    assert refused.code == 2
    assert refused.err == (
        "error: model is a base model: it has no chat template, so it cannot chat\n\n"
        "hint: give --template FILE.jinja, or continue a text with `llmcli generate`\n"
    )
    Path("mine.jinja").write_text(TEMPLATE)
    given = invoke("chat", "-m", base, "--template", "mine.jinja", stdin=b"say 1")
    assert (given.code, given.out) == (0, "one\n")
    for bad in ("nowhere.jinja", "."):
        result = invoke("chat", "-m", base, "--template", bad, stdin=b"say 1")
        assert result.code in (1, 2)
        assert bad in result.err


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--quiet", "-v"], "--quiet and -v contradict each other"),
        (["--markdown", "--raw-output"], "--markdown does not let control codes through"),
        (["--think", "maybe"], "--think is 'maybe'; it must be one of show, hide"),
        (["--overflow", "x"], "--overflow is 'x'"),
        (["--top-p", "3"], "top-p is 3"),
        (["--strategy", "greedy", "--top-p", "0.5"], "does not read --top-p"),
        (["--stop", ""], "--stop is empty"),
        (["--resume", "gone"], "there is no conversation gone"),
        (["--resume"], "there is no conversation"),
        (["--resume", "../x"], "cannot name a conversation"),
    ],
)
def test_refused_at_once(invoke: Invoke, model: str, args: list[str], told: str) -> None:
    result = invoke("chat", "-m", model, *args, stdin=b"say 1")
    assert (result.code, result.out) == (2, "")
    assert told in result.err
    assert result.err.count("error: ") == 1


def test_a_system_message_that_the_template_has_no_place_for(
    invoke: Invoke, tmp_path: Path
) -> None:
    model = puppet(tmp_path, SCRIPTS, chat_template=TEMPLATE.replace("messages", "messages[-1:]"))
    result = invoke("chat", "-m", model, "--system", "Be brief.", stdin=b"say 1")
    assert result.code == 1
    assert "no place for a system message" in result.err
    assert invoke("chat", "-m", model, stdin=b"/system Be brief.\nsay 1").out == "one\n"


@pytest.mark.parametrize("name", ["gone", "../x"])
def test_a_name_is_refused_before_a_model_is_looked_for(invoke: Invoke, name: str) -> None:
    result = invoke("chat", "-m", "./nowhere", "--resume", name, stdin=b"say 1")
    assert result.code == 2
    assert "conversation" in result.err
    assert "nowhere" not in result.err


def test_resume(invoke: Invoke, model: str) -> None:
    invoke("chat", "-m", model, stdin=b"say 1")
    (name,) = names()
    for args in (["--resume", name], ["--resume"], ["--resume", "-n", "9"], [f"--resume={name}"]):
        result = invoke("chat", "-m", model, *args, stdin=b"say 2\n/undo\n/tree")
        assert result.code == 0
        assert result.out.splitlines()[:2] == ["two", "* 1 say 1  [main]"]
    assert names() == [name]


def test_resumed_with_another_model(invoke: Invoke, model: str, tmp_path: Path) -> None:
    invoke("chat", "-m", model, stdin=b"say 1")
    other = Path(model).rename(tmp_path / "renamed")
    result = invoke("chat", "-m", str(other), "--resume", stdin=b"say 2")
    assert "warning: the conversation was with model, and goes on with renamed" in result.err


def test_a_full_context_is_announced(invoke: Invoke, tmp_path: Path) -> None:
    model = puppet(tmp_path, SCRIPTS, max_positions=80)
    lines = b"\n".join(b"message number %d" % number for number in (1, 2, 1))
    dropped = invoke("chat", "-m", model, "--system", "Hi.", stdin=lines)
    assert (dropped.code, dropped.out) == (0, "one\ntwo\none\n")
    assert dropped.err.count("warning: ") == 1
    assert "the model does not see turn 1 'message number 1'" in dropped.err
    lines += b"\nmessage number 2\n/clear\nhi"
    stopped = invoke("chat", "-m", model, "--overflow", "stop", stdin=lines)
    assert (stopped.code, stopped.out) == (1, "one\ntwo\none\nok\n")
    assert stopped.err.count("error: ") == 1


def test_a_reply_that_may_outgrow_the_context_is_announced(invoke: Invoke, tmp_path: Path) -> None:
    model = puppet(tmp_path, {"": ["ok"], "1": [b"abcdefgh"]}, ends=False)
    args = ["chat", "-m", model, "--max-context", "100", "--overflow", "shift", "--quiet"]
    lines = b"message 1\n/set max-new-tokens NEW\nsay 1\n"
    short = invoke(*args, "-n", "9", stdin=lines.replace(b"NEW", b"9"))
    assert short.err == ""
    long = invoke(*args, "-n", "9", stdin=lines.replace(b"NEW", b"99"))
    warned, told = long.err.splitlines()
    assert warned.endswith("of 100 tokens, the rest of it is made without turn 1 'message 1'")
    assert told.startswith("the reply outgrew the context: its cache has dropped ")


def test_what_cannot_be_saved_is_said(invoke: Invoke, model: str) -> None:
    Path("../home").mkdir(exist_ok=True)
    Path("../home/chats").write_text("in the way")
    result = invoke("chat", "-m", model, stdin=b"say 1\nsay 2")
    assert (result.code, result.out) == (1, "one\ntwo\n")
    assert "error: " in result.err


def test_conversations_are_their_owners_alone(invoke: Invoke, model: str) -> None:
    invoke("chat", "-m", model, stdin=b"say 1")
    (file,) = Path("../home/chats").glob("*.jsonl")
    assert file.stat().st_mode & 0o077 == 0
    assert all(json.loads(line) for line in file.read_text().splitlines())


def test_every_decoding_option_can_be_set() -> None:
    for name in Decoding.__dataclass_fields__:
        assert find_key(name) is setting_keys()[name.replace("_", "-")]
        assert find_key("--" + name.replace("_", "-")).field == name
    assert find_key("-n").name == "max-new-tokens"
    assert find_key("t").name == "temperature"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(session.Path, "home", nowhere)
    assert session._short(Path("/chats/a.jsonl")) == str(Path("/chats/a.jsonl"))
