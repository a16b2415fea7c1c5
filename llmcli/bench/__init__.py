"""What bench-cache measures, returned as plain data.

Must not know checkpoints on disk, text, argv or terminals, and prints nothing.
"""
