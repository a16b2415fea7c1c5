"""Every slash command, through lines that are piped in; what a person alone sees comes later."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcli.cli.chatting.slash import COMMANDS
from tests.cli.chatting.talking import TEMPLATE, puppet
from tests.cli.conftest import Invoke
from tests.cli.drive import Result

SCRIPTS = {"": ["ok"], "1": ["one"], "2": ["two"], "3": ["three"]}


class Talker:
    def __init__(self, invoke: Invoke, model: str) -> None:
        self._invoke = invoke
        self.model = model

    def __call__(self, *lines: str, args: tuple[str, ...] = (), seen: bool = False) -> Result:
        """`seen`: somebody watches stderr."""
        data = "\n".join(lines).encode()
        result: Result = self._invoke(
            "chat", "-m", self.model, *args, stdin=data, errors_terminal=seen
        )
        return result


@pytest.fixture
def talk(invoke: Invoke, tmp_path: Path) -> Talker:
    return Talker(invoke, puppet(tmp_path, SCRIPTS))


def test_help_names_every_command(talk: Talker) -> None:
    lines = talk("/help").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(COMMANDS)
    assert "quoted as in a shell" in talk("/help set").out
    assert talk("/help cache").out.splitlines()[1].startswith("/cache [on|off|show]")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/hepl", "did you mean /help?"),
        ("/", "/help lists them"),
        ("/usr/bin is full", "//text sends a message"),
        ("/goto", "/goto needs NAME"),
        ("/goto nowhere", "there is no branch 'nowhere'"),
        ("/undo 3", "/undo takes no argument"),
        ("/undo", "there is no turn to undo"),
        ("/edit x", "'x' is not a turn's number"),
        ("/edit 7", "there is no turn 7"),
        ("/edit " + 5000 * "9", "is not a turn's number"),
        ("/cache maybe", "it must be on, off or show"),
        ("/help nothing", "there is no command /nothing"),
        ("/set tempo 1", "there is no setting 'tempo'"),
        ("/set temprature 1", "did you mean temperature?"),
        ("/set system x", "/system TEXT sets it"),
        ("/set max-context 9", "llmcli chat --max-context"),
        ("/set temperature hot", "error: temperature is 'hot'; it must be a number"),
        ("/set temperature hot", "hint: /set temperature default leaves it to its default"),
        ("/set top-p 3", "top-p is 3; it must lie between 0 and 1\n\nhint: /set top-p default"),
        ("/set num-beams 3", "hint: leave it out, or use /strategy beam; /help set tells more"),
        ("/set stop 'one", "quote as in a shell: /set stop 'one text'"),
        ("/set stop a ''", "stop is empty"),
        ("/set logit-bias a", "such as /set logit-bias ' yes=+1.5'"),
        ("/set suppress a 9999", "suppress names id 9999"),
        ("/model --template", "--template needs FILE"),
        ("/model --template nowhere", "nowhere is not a file"),
        ("/set think maybe", "it must be one of show, hide"),
        ("/set markdown maybe", "it must be on or off"),
        ("/strategy fast", "error: strategy is 'fast'"),
        ("/read nowhere", "does not exist"),
        ("/read .", "is not a regular file"),
        ("/read /dev/zero", "is not a regular file"),
        ("/load nowhere", "nowhere"),
        ("/model ./nowhere", "nowhere does not exist"),
        ("/top", "there is no token yet"),
        ("/\x1b[31m", "there is no command /\\x1b[31m"),
    ],
)
def test_a_mistake_is_one_error_and_no_end(talk: Talker, line: str, told: str) -> None:
    result = talk(line, "say 1")
    assert result.err.count("error:") == 1
    assert told in result.err
    assert (result.code, result.out) == (1, "one\n")


def test_undo_and_regen(talk: Talker) -> None:
    result = talk("say 1", "say 2", "/undo", "/regen", "/tree", seen=True)
    assert result.code == 0
    assert result.out.splitlines()[:3] == ["one", "two", "one"]
    assert "turn 2 'say 2' is taken back" in result.err
    assert result.out.splitlines()[3:] == ["  - 1 say 1", "    2 say 2", "* - 3 say 1  [main]"]


def test_edit(talk: Talker) -> None:
    result = talk("say 1", "say 2", "/edit 1", "say 3", "/tree")
    assert result.out.splitlines() == [
        *("one", "two", "three"),
        *("  - 1 say 1", "    2 say 2", "* - 3 say 3  [main]"),
    ]


@pytest.mark.parametrize("line", ["", "/stats"])
def test_an_edit_is_given_up(talk: Talker, line: str) -> None:
    result = talk("say 1", "/edit 1", line, "say 2", "/tree")
    assert "nothing is edited" in result.err
    assert result.out.splitlines()[-2:] == ["+ 1 say 1", "* 2 say 2  [main]"]


def test_fork_and_goto(talk: Talker) -> None:
    lines = ["say 1", "/fork other", "say 2", "/goto main", "say 3", "/goto other", "/tree"]
    result = talk(*lines, seen=True)
    assert result.code == 0
    assert "at turn 2 'say 2', branch other" in result.err
    assert result.out.splitlines()[3:] == [
        "+ 1 say 1",
        "* - 2 say 2  [other]",
        "  - 3 say 3  [main]",
    ]


def test_clear_and_system(talk: Talker) -> None:
    lines = ["/system", "/system Be brief.", "say 1", "/clear", "/system", "/system -", "/system"]
    result = talk(*lines, "say 2", "/tree", seen=True)
    shown = ["no system message", "system: Be brief.", "no system message"]
    assert [line for line in result.err.splitlines() if line in shown] == shown
    assert result.out.splitlines()[2:] == ["  - 1 say 1", "* - 2 say 2  [main]"]


def test_system_from_the_command_line(talk: Talker) -> None:
    assert "system: Be brief." in talk("/system", args=("--system", "Be brief.")).err
    talk("say 1", args=("--system", "Be brief."))
    assert "system: Be brief." in talk("/system", args=("--resume",)).err
    assert "system: No." in talk("/system", args=("--resume", "--system", "No.")).err


def test_set_and_show(talk: Talker) -> None:
    lines = ["/set temperature", "/set temperature 0.7", "/set --top_p 0.9", "/set -t", "/show"]
    result = talk(*lines, args=("-t", "0.5", "--seed", "3", "-n", "9"))
    lines = result.out.splitlines()
    assert lines[:2] == ["temperature 0.5 flag", "temperature 0.7 /set"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:]}
    assert rows["strategy"][0] == "sample"
    assert rows["temperature"] == ["0.7", "/set"]
    assert rows["top-p"] == ["0.9", "/set"]
    assert rows["seed"] == ["3", "flag"]
    assert rows["max-new-tokens"] == ["9", "flag"]
    assert rows["think"] == ["show", "built-in"]
    assert rows["kv-cache"] == ["on", "built-in"]
    again = talk("/set temperature 0.7", "/set temperature default", "/set temperature")
    assert again.out == "temperature - built-in\n"


def test_a_setting_that_contradicts_changes_nothing(talk: Talker) -> None:
    result = talk("/set num-beams 3", "/set num-beams", "say 1")
    assert "strategy greedy (built-in) does not read num-beams" in result.err
    assert result.out == "num-beams - built-in\none\n"


def test_set_acts(talk: Talker) -> None:
    result = talk("/set max-new-tokens 0", "say 1", "/set stop n", "/set -n default", "say 1")
    assert result.out == "\no\n"
    assert talk("/set think hide", "/set think").out == "think hide /set\n"


@pytest.mark.parametrize(
    ("key", "given", "shown", "reply"),
    [
        ("stop", "'ne tw' e", "'ne tw' e", "o"),
        ("stop", '"it\'s" wo', "'it'\"'\"'s' wo", "one t"),
        ("suppress", "' two' tru", "' two' tru", "one"),
        ("logit-bias", "' two=-999' tru=-9", "' two=-999' tru=-9", "one"),
    ],
)
def test_several_values(
    invoke: Invoke, tmp_path: Path, key: str, given: str, shown: str, reply: str
) -> None:
    talk = Talker(invoke, puppet(tmp_path, {"": ["one", " two", "tru"]}))
    set_ = [f"/set {key} {given}", f"/set {key}", "-", f"/set {key} none", f"/set {key}"]
    result = talk(*set_, "-", args=("-n", "3"))
    lines = result.out.splitlines()
    assert result.err == ""
    assert lines[0] == f"{key} {shown} /set"
    assert lines[1].startswith(reply)
    assert " two" not in lines[1]
    assert lines[-2:] == [f"{key} - built-in", "one twotru"]


def test_strategy_unsets_what_it_does_not_read(talk: Talker) -> None:
    result = talk("/set top-k 5", "/strategy beam", "/set top-k", "/strategy", "say 1", seen=True)
    assert "strategy beam; it does not read top-k, now unset" in result.err
    lines = result.out.splitlines()
    assert lines[0] == "top-k - built-in"
    assert lines[1].startswith("beam (of greedy, sample, beam")
    assert lines[2] == "one"


def test_cache(talk: Talker) -> None:
    result = talk("say 1", "/cache", "/cache off", "say 2", "/cache show", "/cache on", "/cache")
    lines = result.out.splitlines()
    assert lines[1].startswith("KV cache on, 1 held")
    assert lines[2].endswith(" MB")
    assert lines[4].startswith("KV cache off")
    assert lines[5].startswith("KV cache on")
    assert talk("/cache", args=("--no-kv-cache",)).out.startswith("KV cache off")


def test_the_cache_changes_no_text(talk: Talker) -> None:
    lines = ["say 1", "say 2", "say 3"]
    assert talk(*lines).out == talk(*lines, args=("--no-kv-cache",)).out


def test_save_load_and_export(talk: Talker) -> None:
    talk("say 1", "/fork b", "say 2", "/save kept.jsonl", "/export talk.md")
    assert "say 2" in Path("talk.md").read_text()
    result = talk("say 3", "/load kept.jsonl", "/tree", "say 1", seen=True)
    assert result.out.splitlines()[1:] == ["+ 1 say 1  [main]", "* 2 say 2  [b]", "one"]
    refused = talk("say 3", "/save kept.jsonl")
    assert refused.err.count("error: ") == 1
    # What this chat wrote itself may be written again.
    assert talk("say 3", "/save mine", "say 1", "/save mine").code == 0


def test_read(talk: Talker) -> None:
    Path("a file.txt").write_text("/help [bold] <|end|> \n", encoding="utf-8")
    Path("bad").write_bytes(b"\xff")
    result = talk("/read a file.txt", "say 1", "/read a file.txt", "", "/edit 1", seen=True)
    assert "a file.txt: 21 bytes, 1 line, 21 tokens" in result.err
    assert result.out == "one\nok\n"
    assert "is not UTF-8: byte 0xff" in talk("/read bad").err


def test_tokens_and_top(talk: Talker) -> None:
    assert talk("/tokens a<").out.splitlines() == ["ID  TEXT", "97  'a'", "60  '<'"]
    lines = talk("say 1", "/top").out.splitlines()[1:]
    assert lines[0].split() == ["ID", "TEXT", "PROBABILITY", "LOGPROB"]
    assert "'<|end|>'" in lines[1]


def test_model(talk: Talker, tmp_path: Path) -> None:
    other = puppet(tmp_path / "other", ["another"])
    result = talk("say 1", f"/model {other}", "say 1", "/model", seen=True)
    assert result.out.splitlines()[:2] == ["one", "another"]
    assert str(tmp_path / "other") in result.out
    base = puppet(tmp_path / "base", ["based"], chat_template=None)
    refused = talk(f"/model {base}", "say 1")
    assert "it has no chat template" in refused.err
    assert refused.out == "one\n"
    Path("mine.jinja").write_text(TEMPLATE.replace("<|user|>", "U:"))
    lines = ["say 1", f"/model {base} --template mine.jinja", "say 1", "/show"]
    given = talk(*lines, f"/model {base}", "/model --template mine.jinja", "say 1")
    assert [line for line in given.out.splitlines() if line in ("one", "based")] == [
        *("one", "based", "based")
    ]
    assert "mine.jinja" in next(one for one in given.out.splitlines() if "template" in one)
    # A template is not kept for the next checkpoint, nor for the same one
    assert given.err.count("it has no chat template") == 1


def test_stats(talk: Talker) -> None:
    lines = talk("say 1", "say 2", "/stats").out.splitlines()[2:]
    assert lines[0].startswith("last turn: kept ")
    assert lines[1].startswith("2 turns here: kept ")
    assert lines[2].startswith("ctx ")


def test_a_draft_model_and_guidance(talk: Talker) -> None:
    lines = [f"/set draft-model {talk.model}", "say 1", "/strategy", "/strategy greedy", "say 2"]
    lines += ["/set guidance-scale 1.5", "/set negative-prompt no", "say 1", "/set num-return 2"]
    result = talk(*lines, seen=True)
    assert result.out.splitlines()[0] == "one"
    assert result.out.splitlines()[1].startswith("speculative (of greedy")
    assert result.out.splitlines()[2:] == ["two", "one"]
    assert "it does not read draft-model, now unset" in result.err
    assert "num-return is 2; a chat has one reply a turn" in result.err
    assert result.err.count("error:") == 1


def test_an_export_does_not_write_over_a_saved_conversation(talk: Talker) -> None:
    result = talk("say 1", "/save kept.jsonl", "/export kept.jsonl", "/save kept.jsonl")
    assert "there is a file" in result.err
    assert Path("kept.jsonl").read_text().startswith("{")


def test_a_base_model_in_mid_chat(talk: Talker) -> None:
    told = talk("/model stories260k", "say 1")
    assert "hint: /model stories260k --template FILE.jinja gives it one" in told.err
    assert "one" in told.out
