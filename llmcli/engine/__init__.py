"""The one joiner of all rooms below: load a checkpoint, run a generation.

Must not know terminals or argv.
"""
