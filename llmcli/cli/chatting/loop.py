"""The loop: read, answer or obey, until there is nothing more to read.

No error of a message or of a command ends it, and Ctrl-C ends it only at an empty prompt.
"""

from __future__ import annotations

from contextlib import suppress

from llmcli.cli import interrupts, terminal
from llmcli.cli.chatting.slash import run_command
from llmcli.cli.chatting.talk import LeaveError, Talk
from llmcli.cli.chatting.turns import meter_text, say
from llmcli.cli.chatting.typed import PressedError, Typed
from llmcli.cli.failures import explained
from llmcli.errors import LlmcliError

HINT = "(Ctrl-C once more, or Ctrl-D, leaves)"


def talk_on(talk: Talk, *, debug: bool) -> int:
    """The exit code: 0, 1 where a message or a command failed without anybody there to see it,
    130 where Ctrl-C ended it."""
    hinted = False
    while True:
        try:
            # What the last press asked for has been done.
            interrupts.rearm()
            typed = _read(talk)
            hinted = False
            _obey(talk, typed)
        except EOFError:
            return int(talk.failed)
        except LeaveError as leaving:
            return leaving.code or int(talk.failed)
        except PressedError as press:
            if not talk.reader.interactive or (press.empty and hinted):
                return interrupts.INTERRUPTED
            hinted = press.empty
            if hinted:
                terminal.note(HINT)
        except KeyboardInterrupt:
            interrupts.acknowledge()
            if not talk.reader.interactive:
                return interrupts.INTERRUPTED
            terminal.note("stopped")
        except (terminal.OutputError, terminal.ReaderGoneError, BrokenPipeError):
            raise
        except Exception as error:
            talk.failed = talk.failed or not talk.reader.interactive
            told = explained(error)
            terminal.fail(told.error, debug=debug or told.is_bug)


def _read(talk: Talk) -> Typed:
    meter = ""
    if talk.reader.interactive:
        # A template that refuses the conversation says so at the next message, not here for ever
        with suppress(LlmcliError):
            meter = meter_text(talk.chat.meter())
    draft, talk.draft = talk.draft, ""
    return talk.reader.read(meter=lambda: meter, draft=draft)


def _obey(talk: Talk, typed: Typed) -> None:
    command = typed.command
    if (command or not typed.text.strip()) and talk.editing is not None:
        talk.editing = None
        terminal.note("nothing is edited")
        if not command:
            return
    if command is not None:
        run_command(talk, *command)
    elif typed.text.strip() or talk.waiting:
        say(talk, typed.message)
