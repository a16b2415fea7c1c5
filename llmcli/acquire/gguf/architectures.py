"""The GGUF architectures that can be imported, by the name in the file.

A new architecture is a new file of data and a new row here. Must not know anything else.
"""

from __future__ import annotations

from collections.abc import Mapping

from llmcli.acquire.gguf.gemma3 import GEMMA3
from llmcli.acquire.gguf.gpt2 import GPT2
from llmcli.acquire.gguf.llama import LLAMA
from llmcli.acquire.gguf.phi3 import PHI3
from llmcli.acquire.gguf.qwen import QWEN2, QWEN3
from llmcli.acquire.gguf.rules import Architecture

ARCHITECTURES: Mapping[str, Architecture] = {
    row.name: row for row in (LLAMA, QWEN2, QWEN3, PHI3, GPT2, GEMMA3)
}
