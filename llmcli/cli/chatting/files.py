"""Slash commands that read and write files."""

from __future__ import annotations

from pathlib import Path

from llmcli.cli import terminal
from llmcli.cli.chatting.branching import tell
from llmcli.cli.chatting.talk import Talk
from llmcli.cli.prompt_input import decoded, without_end
from llmcli.errors import UsageError
from llmcli.plurals import counted

# No context holds more, and reading it would look like a hang.
_MOST_BYTES = 16 * 2**20


def save(talk: Talk, name: str) -> None:
    from llmcli.chat.export import save as write

    path = user_path(name)
    write(talk.chat.conversation, path, replace=path in talk.saved, keeper=talk.keeper)
    talk.saved.add(path)
    tell(talk, f"saved in {path}")


def export(talk: Talk, name: str) -> None:
    from llmcli.chat.export import export as write

    path = user_path(name)
    write(talk.chat.conversation, path, replace=path in talk.exported, keeper=talk.keeper)
    talk.exported.add(path)
    tell(talk, f"written to {path}")


def load(talk: Talk, name: str) -> None:
    opened = talk.shelf.load(user_path(name))
    talk.chat.switch_conversation(opened.conversation)
    talk.keeper.close()
    talk.keeper = opened.keeper
    if opened.notice:
        terminal.note(f"warning: {opened.notice}")
    turns = len(opened.conversation.turns)
    tell(talk, f"{turns} turn{'s' * (turns != 1)}; it is now kept as {opened.keeper.name}")


def read(talk: Talk, name: str) -> None:
    path = user_path(name)
    text = _text(path)
    talk.waiting.append(text)
    count = len(talk.chat.tokens(text))
    size, lines = counted(len(text.encode()), "byte"), counted(text.count("\n") + 1, "line")
    tell(
        talk,
        f"{path}: {size}, {lines}, {counted(count, 'token')}; "
        "it goes before the next message, or alone with an empty one",
    )


def user_path(name: str) -> Path:
    """The whole path of a file that was typed."""
    try:
        return Path(name).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"{name}: {error}", hint="give the whole path") from error


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            what = "is not a regular file" if path.exists() else "does not exist"
            raise UsageError(f"{path} {what}", hint="give a UTF-8 text file")
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageError(
            f"{path} cannot be read: {reason or error}", hint="check the path and its permissions"
        ) from error
    if len(data) > _MOST_BYTES:
        raise UsageError(
            f"{path} has more than {_MOST_BYTES} bytes", hint="no context holds so much"
        )
    return without_end(decoded(data, str(path)))
