"""One `llmcli chat` from its options to its exit code."""

from __future__ import annotations

from pathlib import Path

from llmcli.cli import interrupts, terminal
from llmcli.cli.chatting.chosen import Chosen
from llmcli.cli.chatting.loop import talk_on
from llmcli.cli.chatting.opening import (
    find_chat_model,
    make_reader,
    open_earlier,
    open_shelf,
    tell_of_another,
)
from llmcli.cli.chatting.slash import offers
from llmcli.cli.chatting.talk import Talk, engine_options
from llmcli.cli.report import machine_lines, stop_ids_line
from llmcli.cli.running import find_draft, load_found
from llmcli.errors import UsageError


def run(chosen: Chosen, *, debug: bool) -> int:
    """The exit code. Raises LlmcliError for what is wrong before the first message."""
    chatting, loading = chosen.chatting, chosen.loading
    _check(chosen)
    shelf = open_shelf()
    earlier = open_earlier(shelf, chatting)
    keeper = None if earlier is None else earlier.keeper
    try:
        resolved = find_chat_model(loading.model, chatting.template)
        opened = earlier or shelf.new(model=resolved.name)
        keeper = opened.keeper
        tell_of_another(opened, resolved.name)
        found = find_draft(chosen.decoding.draft_model, resolved, loading)
        engine = load_found(resolved, loading, template=chatting.template)
        draft = None if found is None else load_found(found, loading)
        options = engine_options(chosen, engine, draft)
        from llmcli.engine.chatting import Chat

        talk: Talk
        talk = Talk(
            chat=Chat(engine, opened.conversation, options, model=resolved.name),
            chosen=chosen,
            resolved=resolved,
            shelf=shelf,
            keeper=keeper,
            draft_model=draft,
            reader=make_reader(offers(lambda: talk)),
        )
        _system(talk, chatting.system)
        if opened.notice:
            terminal.note(f"warning: {opened.notice}")
        _greet(talk)
        with terminal.kept_modes() as restore, interrupts.restored_when_ended(restore):
            try:
                return talk_on(talk, debug=debug)
            finally:
                keeper = talk.keeper
    finally:
        if keeper is not None:
            keeper.close()


def _check(chosen: Chosen) -> None:
    chatting = chosen.chatting
    if chatting.quiet and chatting.verbose:
        raise UsageError("--quiet and -v contradict each other", hint="leave one out")
    if chatting.markdown and chatting.raw_output:
        raise UsageError(
            "--markdown does not let control codes through as --raw-output asks",
            hint="leave one out",
        )
    chosen.request()


def _system(talk: Talk, text: str | None) -> None:
    """The message of --system, checked against the template; a resumed conversation gets it too."""
    if text is not None and text != talk.chat.conversation.system:
        talk.chat.set_system(text)


def _greet(talk: Talk) -> None:
    """What is loaded and where the conversation is kept, for whoever watches."""
    engine = talk.chat.engine
    if talk.verbose:
        for line in machine_lines(talk.resolved, engine):
            terminal.note(line)
        terminal.note(stop_ids_line(engine, ignored=talk.chosen.ending.ignore_eos))
    if not talk.quiet and talk.reader.interactive and terminal.shows_notices():
        turns = len(talk.chat.conversation.path())
        again = f"; {turns} turn{'s' * (turns != 1)} so far" if turns else ""
        terminal.note(
            f"{talk.resolved.name} ({engine.loaded.family}), context {talk.chat.context} tokens; "
            f"/help lists the commands"
        )
        terminal.note(f"saved in {_short(talk.keeper.path)}{again}")


def _short(path: Path) -> str:
    """With `~` for the user's own folder."""
    try:
        home = Path.home()
    except RuntimeError:  # neither $HOME nor a name for this user
        return str(path)
    return str(Path("~") / path.relative_to(home)) if path.is_relative_to(home) else str(path)
