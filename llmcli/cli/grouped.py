"""A command whose --help lists its options in groups, as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.core import TyperArgument, TyperCommand, TyperOption

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter

GENERAL = "Options"


class GroupedCommand(TyperCommand):
    """`rich_help_panel` names an option's group; the order is that of the parameters."""

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return ["[OPTIONS]", *(_name(param) for param in _arguments(self, ctx))]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        for title, rows in groups(self, ctx).items():
            with formatter.section(title):
                formatter.write_dl(rows)


def groups(command: TyperCommand, ctx: Context) -> dict[str, list[tuple[str, str]]]:
    """Title -> (names, help) of every parameter; arguments first, ungrouped options last."""
    found = {"Arguments": [(_name(item), item.help or "") for item in _arguments(command, ctx)]}
    general: list[tuple[str, str]] = []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if not isinstance(param, TyperOption) or record is None:
            continue
        panel = param.rich_help_panel
        rows = found.setdefault(panel, []) if isinstance(panel, str) else general
        rows.append(record)
    return {title: rows for title, rows in {**found, GENERAL: general}.items() if rows}


def _arguments(command: TyperCommand, ctx: Context) -> list[TyperArgument]:
    return [param for param in command.get_params(ctx) if isinstance(param, TyperArgument)]


def _name(argument: TyperArgument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required else f"[{name}]"
