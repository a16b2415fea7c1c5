"""argv -> calls -> terminal. One command a file; options/ declares each option once.

Must not know tensors or family names, and imports no torch before a command needs it.
"""
