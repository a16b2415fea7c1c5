"""What every forked child has imported already."""

from importlib import import_module

import torch

for name in (
    "llmcli.cli.answering",
    "llmcli.cli.chatting.session",
    "prompt_toolkit",
    "llmcli.engine.engine",
    "tests.cli.drive",
):
    import_module(name)
torch.set_num_threads(1)
