"""llmcli chat: a conversation in which the KV cache is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmcli.cli import options
from llmcli.cli.bundles import unbundled
from llmcli.cli.chat_options import LAST, Chatting
from llmcli.cli.constraining import Constraining
from llmcli.cli.grouped import GroupedCommand
from llmcli.cli.options.decoding import Decoding

if TYPE_CHECKING:
    from typer._click.core import Context


class ChatCommand(GroupedCommand):
    """Its `--resume` may stand without a value."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        given: list[str] = []
        for at, arg in enumerate(args):
            alone = at + 1 == len(args) or args[at + 1].startswith("-")
            given += [arg, LAST] if arg == "--resume" and alone else [arg]
        return super().parse_args(ctx, given)


@unbundled
def chat(
    *,
    chatting: Chatting,
    loading: options.Loading,
    decoding: Decoding,
    constraining: Constraining,
    ending: options.Ending,
    debug: options.Debug = False,
    version: options.Version = False,  # noqa: ARG001
) -> int:
    """Talk with a model; what it has read is kept from turn to turn.

    Each line is a message, and each conversation is saved as it goes on. /help lists the commands.
    Lines that are piped in are answered one by one.
    """
    from llmcli.cli.chatting.chosen import Chosen
    from llmcli.cli.chatting.session import run

    chosen = Chosen(
        loading=loading,
        decoding=decoding,
        ending=ending,
        chatting=chatting,
        grammar=constraining.read(),
    )
    return run(chosen, debug=debug)


COMMAND_CLASS = ChatCommand
