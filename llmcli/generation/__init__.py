"""Ids in, ids out: parameters, the stepper, logits processors, the stop rule, strategies.

Must not know text, tokenizers, files or families.
"""
