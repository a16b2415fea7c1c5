"""Decode on a CPU in machine code: all layers of a step in one call, and single products.

`sources` are written as LLVM's code once for all machines (`written`, kernels.ll.xz), which `code`
turns into machine code once for each; `team` runs it in threads. Kernels know addresses and sizes,
told by tables of numbers (`layout`); what a decoder is, model/ knows.
"""
