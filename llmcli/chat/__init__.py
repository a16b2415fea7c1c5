"""A conversation: its tree of turns, where it is kept, and what of it fits into the context.

Must not know torch, models, tokenizers' files or terminals.
"""
