"""What is on disk: the folder, tensor headers, the config ledger, rules and the load plan.

Must not know the decoder's code (model/) or any family; only tensors.py imports torch.
"""
