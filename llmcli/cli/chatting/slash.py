"""The table of slash commands, and running one. Must not know how they do what they do."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from llmcli.checkpoint.escape import printable
from llmcli.cli import terminal
from llmcli.cli.chatting import branching, files, looking, tuning
from llmcli.cli.chatting.setting_keys import UNSET, setting_keys
from llmcli.cli.chatting.talk import LeaveError, Talk
from llmcli.cli.options import StrategyChoice
from llmcli.errors import UsageError

if TYPE_CHECKING:
    from llmcli.cli.chatting.completion import Offer

Words = Callable[[Talk, list[str]], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Command:
    """`argument` in square brackets may be left out. `offer` is what Tab completes in it.

    `more` are lines that the help of this command alone shows.
    """

    argument: str
    help: str
    run: Callable[[Talk, str], None]
    offer: Words | str = ""
    more: str = ""


FILE = "file"


def _help(talk: Talk, argument: str) -> None:
    if argument:
        name = _known("/" + argument.lstrip("/"))
        rows = {name: COMMANDS[name]}
    else:
        rows = dict(COMMANDS)
    terminal.print_table(
        ("COMMAND", "WHAT IT DOES"),
        [(f"{name} {row.argument}".rstrip(), row.help) for name, row in rows.items()],
    )
    for line in rows[name].more.splitlines() if argument else ():
        terminal.print_line(line)
    if not argument and talk.reader.interactive:
        terminal.show(KEYS)


def _leave(_: Talk, __: str) -> None:
    raise LeaveError


def _setting_words(_: Talk, before: list[str]) -> Iterable[str]:
    if not before:
        return setting_keys()
    key = setting_keys().get(before[0])
    return (*key.choices, UNSET) if key is not None and len(before) == 1 else ()


def _branches(talk: Talk, before: list[str]) -> Iterable[str]:
    return () if before else talk.chat.conversation.branches


def _turns(talk: Talk, before: list[str]) -> Iterable[str]:
    return () if before else [str(turn.number) for turn in talk.chat.conversation.path()]


def _strategies(_: Talk, before: list[str]) -> Iterable[str]:
    return () if before else get_args(StrategyChoice)


def _caching(_: Talk, before: list[str]) -> Iterable[str]:
    return () if before else ("on", "off", "show")


def _models(_: Talk, before: list[str]) -> Iterable[str]:
    from llmcli.acquire.places import installed

    return () if before else [model.name for model in installed() if model.first]


def _helped(_: Talk, before: list[str]) -> Iterable[str]:
    return () if before else [name[1:] for name in COMMANDS]


COMMANDS: Mapping[str, Command] = {
    "/help": Command("[COMMAND]", "List the commands, or explain one.", _help, _helped),
    "/exit": Command("", "Leave; the conversation is kept.", _leave),
    "/clear": Command("", "Begin anew; the tree keeps what was said.", branching.clear),
    "/system": Command(
        "[TEXT]",
        "Set the system message; `-` takes it away, nothing shows it.",
        branching.system,
        more="It holds from the next message on, for the whole history that is sent with it.",
    ),
    "/set": Command(
        "[KEY [VALUE]]",
        "Set a decoding option by its name; `default` unsets it, no value shows it.",
        tuning.set_,
        _setting_words,
        "KEY is the name of a flag; without one all settings are listed. stop, logit-bias and\n"
        "suppress take several values, quoted as in a shell: /set stop END 'The end'; none clears\n"
        "them. Any other value is taken as it stands.",
    ),
    "/show": Command("", "Show every setting in use, and who set it.", tuning.show),
    "/stats": Command("", "Show what the turns cost.", looking.stats),
    "/regen": Command("", "Answer the last message again, as a sibling.", branching.regen),
    "/undo": Command("", "Take the last turn back.", branching.undo),
    "/edit": Command(
        "N", "Say the message of turn N differently, as a sibling.", branching.edit, _turns
    ),
    "/fork": Command("NAME", "Begin a branch here.", branching.fork),
    "/tree": Command("", "Show all turns and branches.", branching.tree),
    "/goto": Command(
        "NAME", "Go on from the end of a branch, or from turn NAME.", branching.goto, _branches
    ),
    "/save": Command("FILE", "Save a copy of the whole tree.", files.save, FILE),
    "/load": Command("FILE", "Go on with a saved conversation.", files.load, FILE),
    "/export": Command("FILE.md", "Write the conversation as Markdown.", files.export, FILE),
    "/read": Command("FILE", "Put a text file before the next message.", files.read, FILE),
    "/tokens": Command("TEXT", "Show the tokens of a text.", looking.tokens),
    "/top": Command("", "Show the likeliest candidates for the last token.", looking.top),
    "/cache": Command(
        "[on|off|show]", "Keep keys and values from turn to turn, or not.", tuning.cache, _caching
    ),
    "/model": Command(
        "[NAME] [--template FILE]",
        "Go on with another checkpoint.",
        tuning.model,
        _models,
        "The new one speaks in its own chat template, or in that of FILE; a --template given\n"
        "before is not kept. Without NAME the same checkpoint goes on with FILE.",
    ),
    "/strategy": Command(
        "[NAME]",
        "Choose the decoding strategy; it unsets what it does not read.",
        tuning.strategy,
        _strategies,
    ),
}

KEYS = '''
//text        a message that begins with a slash
"""           begins and ends a message of several lines
Alt-Enter     a new line          Ctrl-X Ctrl-E  the editor of $VISUAL or $EDITOR
Ctrl-C        stops a reply, drops what is typed; at an empty prompt twice, it leaves
Ctrl-D        leaves              Tab, Up, Ctrl-R  complete, earlier lines, search'''


def run_command(talk: Talk, name: str, argument: str) -> None:
    """Raises UsageError for what is no command, or lacks its argument, or takes none."""
    name = _known(name)
    command = COMMANDS[name]
    if command.argument and not command.argument.startswith("[") and not argument:
        raise UsageError(f"{name} needs {command.argument}", hint=command.help)
    if argument and not command.argument:
        raise UsageError(
            f"{name} takes no argument, and {printable(repr(argument), 60)} was given",
            hint=f"//{name[1:]} ... sends it as a message",
        )
    command.run(talk, argument)


def offers(talk: Callable[[], Talk]) -> Mapping[str, Offer]:
    """What Tab completes after each command."""
    return {name: _offer(talk, command) for name, command in COMMANDS.items()}


def _offer(talk: Callable[[], Talk], command: Command) -> Offer:
    offer = command.offer
    if offer == FILE:
        return "file"
    return None if isinstance(offer, str) else lambda before: offer(talk(), before)


def _known(name: str) -> str:
    if name in COMMANDS:
        return name
    close = difflib.get_close_matches(name, COMMANDS, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise UsageError(
        f"there is no command {printable(name, 60)}",
        hint=f"{meant}/help lists them; //text sends a message that begins with a slash",
    )
