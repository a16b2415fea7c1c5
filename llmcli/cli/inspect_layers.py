"""llmcli inspect-layers: see what a transformer holds and does."""

from __future__ import annotations

from llmcli.cli import options
from llmcli.cli.bundles import unbundled
from llmcli.cli.inspecting import asked as asked_options
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.options.decoding import Decoding


@unbundled
def inspect_layers(
    *,
    prompt: options.PromptText = None,
    file: options.PromptFile = None,
    view: asked_options.Views = None,
    asked: Asked,
    config: asked_options.ConfigFile = None,
    preset: asked_options.PresetName = None,
    loading: options.Loading,
    prompting: options.Prompting,
    decoding: Decoding,
    html: asked_options.HtmlFile = None,
    svg: asked_options.SvgFile = None,
    json: options.Json = False,
    debug: options.Debug = False,  # noqa: ARG001
) -> int:
    """Show what a transformer holds and does, on your own checkpoint.

    Without a prompt only config.json and the headers of the weight files are read, so that a
    checkpoint of any size is shown at once.
    """
    from llmcli.cli.inspecting.asked import refuse_unread
    from llmcli.cli.inspecting.showing import Targets, check_targets, show
    from llmcli.cli.inspecting.subject import PromptSource, find_subject
    from llmcli.cli.inspecting.table import find_views
    from llmcli.cli.running import check_loading
    from llmcli.engine.flags import check_flags

    views = find_views(view or [])
    refuse_unread(views, asked, loading, prompting, decoding, prompt=prompt, file=file)
    check_loading(loading)
    check_flags(flags := decoding.flags())
    targets = Targets(json=json, html=html, svg=svg)
    check_targets(views, targets)
    source = PromptSource(argument=prompt, file=file, prompting=prompting)
    subject = find_subject(
        config=config, preset=preset, loading=loading, prompt=source, flags=flags
    )
    for one in views:
        subject.check(one)
    return show(views, subject, asked, targets)
