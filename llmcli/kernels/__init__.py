"""Decode on a CPU in machine code: all layers of a step in one call, and single products.

`entry` and what it imports are the kernels' sources, which numba turns into LLVM's code once for
a machine (`code`); `team` runs them in threads. They know addresses and sizes, told by tables of
numbers (`layout`); what a decoder is, model/ knows.
"""
