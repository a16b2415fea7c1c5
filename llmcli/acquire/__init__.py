"""Where checkpoints come from: places on disk, the catalogue, the hub, the package index, GGUF.

Importing this room costs nothing; each file imports its heavy library where it is used.
Must not know model/, families/ or the terminal: what moves is told to a `Progress`.
"""
