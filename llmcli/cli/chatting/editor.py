"""Messages typed on a terminal: keys, history, paste, completion, external editor.

Must not know conversations or commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.history import History
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from llmcli.cli import terminal
from llmcli.cli.chatting.blocks import is_open, typed
from llmcli.cli.chatting.completion import Offer, SlashCompleter
from llmcli.cli.chatting.history import add_to_history, read_history
from llmcli.cli.chatting.typed import PressedError, Typed


class Editor:
    """A line editor on whichever of stdout and stderr is the terminal."""

    interactive = True

    def __init__(self, offers: Mapping[str, Offer]) -> None:
        screen = sys.stdout if terminal.is_terminal(sys.stdout) else sys.stderr
        output = create_output(screen)
        if isinstance(output, Vt100_Output):
            # Answers to a question about the cursor would end up in the reply to come.
            output.enable_cpr = False
        self._meter: Callable[[], str] = str
        # Whether something may have been typed before there was a prompt for it.
        self._ahead = False
        self._session: PromptSession[str] = PromptSession(
            "> ",
            multiline=True,
            prompt_continuation=". ",
            rprompt=self._right,
            history=_History(),
            completer=SlashCompleter(offers),
            complete_while_typing=False,
            enable_open_in_editor=True,
            tempfile_suffix=".md",
            key_bindings=_keys(lambda: self._ahead),
            output=output,
            color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
        )

    def read(self, *, meter: Callable[[], str], draft: str = "") -> Typed:
        """Raises EOFError at Ctrl-D in an empty line, PressedError at Ctrl-C."""
        self._meter = meter
        self._ahead = self._read_ahead() or terminal.has_input()
        text = self._session.prompt(default=draft)
        # Bytes that are not UTF-8 come from the terminal as halves of surrogate pairs.
        return typed(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))

    def _read_ahead(self) -> bool:
        """Whether the last prompt took keys from the terminal that are for this one."""
        source = self._session.app.input
        keys = get_typeahead(source)
        store_typeahead(source, keys)
        return bool(keys)

    def _right(self) -> str:
        return "" if get_app().is_done else self._meter()


class _History(History):
    def load_history_strings(self) -> Iterable[str]:
        return reversed(read_history())

    def store_string(self, string: str) -> None:
        add_to_history(string)


def _keys(ahead: Callable[[], bool]) -> KeyBindings:
    keys = KeyBindings()

    typing = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=typing)
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=typing)
    def newline(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add("c-c", filter=typing)
    @keys.add(Keys.SIGINT, filter=typing)
    def press(event: KeyPressEvent) -> None:
        event.app.exit(
            exception=PressedError(empty=not event.current_buffer.text), style="class:aborting"
        )

    # What Linux makes of a Ctrl-D that came while the terminal still collected whole lines.
    @keys.add("c-@", filter=typing & Condition(ahead))
    def end(event: KeyPressEvent) -> None:
        if not event.current_buffer.text:
            event.app.exit(exception=EOFError, style="class:exiting")

    return keys
