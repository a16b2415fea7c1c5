"""GGUF files turned into checkpoints: reader, architectures, tokenizer, writer.

Importing this package imports nothing heavy. Must not know where a GGUF file came from.
"""
