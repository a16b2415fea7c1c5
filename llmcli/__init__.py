"""llmcli: generate text, chat, and look inside decoder-only transformers from a terminal.

Importing the package loads nothing heavy; each command imports what it needs.
"""

__version__ = "0.1.0"
