"""One turn on the terminal: warned of, streamed, broken off, reported.

Whatever stops a reply, the conversation is whole: the turn is in it, or as if it never was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmcli.cli import interrupts, terminal
from llmcli.cli.chatting.shown import Shown
from llmcli.cli.chatting.talk import LeaveError, Talk
from llmcli.cli.progress import StepProgress

if TYPE_CHECKING:
    from llmcli.chat.turn import Turn
    from llmcli.engine.chatting import Done, Meter, Prepared, Reply


def say(talk: Talk, text: str) -> None:
    """Send a message, or the edited one of an earlier turn."""
    number, talk.editing = talk.editing, None
    message = "\n\n".join([*talk.waiting, *([text] if text.strip() or not talk.waiting else [])])
    talk.waiting.clear()
    if number is None:
        take_turn(talk, talk.chat.prepare(message))
    else:
        take_turn(talk, talk.chat.prepare_edit(number, message))


def take_turn(talk: Talk, prepared: Prepared) -> None:
    """Run a turn and report on it. Raises LlmcliError, and the turn is rolled back."""
    if prepared.newly_dropped:
        terminal.note(_dropping(prepared.newly_dropped, prepared.meter))
    if prepared.endangered:
        terminal.note(_endangered(prepared.endangered, prepared.meter))
    prefill = StepProgress("reading the messages")
    reply = talk.chat.run(prepared, on_prefill=prefill)
    shown = Shown(talk.chosen.look, prompt=reply.generation.prompt.text)
    done: Done | None = None
    try:
        for piece in reply:
            prefill.finish()
            shown.add(piece)
        shown.end()
        with interrupts.held():
            done = talk.chat.commit(reply)
    except BaseException as error:
        pressed = isinstance(error, KeyboardInterrupt) or interrupts.pending()
        interrupts.acknowledge()
        if done is None and pressed:
            done = _cut(talk, reply, shown)
        elif done is None:
            _roll_back(talk, reply, shown, error)
            raise
        if not talk.reader.interactive:
            raise LeaveError(interrupts.INTERRUPTED) from None
    finally:
        prefill.finish()
    if done is not None:
        _report(talk, done, shown)


def meter_text(meter: Meter) -> str:
    """How full the context is."""
    return f"ctx {meter.used}/{meter.context} ({100 * meter.used // max(meter.context, 1)}%)"


def turn_line(done: Done) -> str:
    """What a turn cost, in one line."""
    rate = "" if done.rate is None else f", {done.rate:.0f} tok/s"
    return (
        f"kept {done.kept}, prefilled {done.prefilled}, new {done.new}{rate}, "
        f"{meter_text(done.meter)}"
    )


def _cut(talk: Talk, reply: Reply, shown: Shown) -> Done | None:
    """Ctrl-C: what there is of the reply is kept, and shown to its end."""
    done = talk.chat.cut(reply)
    if done is not None:
        shown.catch_up(done.generation.text)
    shown.end()
    if talk.reader.interactive and not talk.quiet:
        terminal.note(
            "stopped before the reply began; the message is not kept"
            if done is None
            else "stopped; the reply is kept as far as it came"
        )
    return done


def _roll_back(talk: Talk, reply: Reply, shown: Shown, error: BaseException) -> None:
    talk.chat.rollback(reply)
    lost = isinstance(error, terminal.OutputError | terminal.ReaderGoneError)
    if shown.begun and not lost:
        shown.end()


def _report(talk: Talk, done: Done, shown: Shown) -> None:
    talk.last = done
    if done.unsaved is not None:
        talk.failed = talk.failed or not talk.reader.interactive
        terminal.fail(done.unsaved, debug=False)
    talk.totals.add(done)
    if shown.unfinished and shown.hidden and not talk.quiet:
        terminal.note("the reply ended in its reasoning, which --think hide hides")
    if dropped := done.generation.stats.dropped_tokens:
        terminal.note(f"the reply outgrew the context: its cache has dropped {dropped} tokens")
    if talk.verbose or (terminal.shows_notices() and not talk.quiet):
        terminal.note(turn_line(done))
    if talk.verbose:
        stats = done.generation.stats
        first = stats.first_token_seconds
        terminal.note(
            f"finish reason: {done.turn.said.ended}; time to first token: "
            f"{'-' if first is None else f'{first:.3f} s'}; cache {stats.cache_bytes / 1e6:.1f} MB"
        )
        seed = done.generation.settings.used.get("seed")
        if seed is not None:
            terminal.note(f"seed: {seed.value} ({seed.source})")


def _dropping(turns: Sequence[Turn], meter: Meter) -> str:
    return (
        f"warning: the context of {meter.context} tokens is full; from now on the model does not "
        f"see {_named(turns)}"
    )


def _endangered(turns: Sequence[Turn], meter: Meter) -> str:
    return (
        f"warning: where the reply outgrows the context of {meter.context} tokens, the rest of it "
        f"is made without {_named(turns)}"
    )


def _named(turns: Sequence[Turn]) -> str:
    named = ", ".join(f"{turn.number} {beginning(turn.said.user)!r}" for turn in turns)
    return f"turn{'s' if len(turns) > 1 else ''} {named}"


def beginning(text: str, most: int = 30) -> str:
    """The first words of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."
