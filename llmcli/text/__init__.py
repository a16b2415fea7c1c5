"""Strings to ids and back: tokenizer, detokenizer, stop strings, chat template, stop ids.

Must not know torch, models, terminals or any other room.
"""
