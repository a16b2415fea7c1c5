"""The kernels' sources, which numba turns into LLVM's code (`llmcli.kernels.written`).

Only who changes them needs numba. `entry` has the one function that is compiled with all that it
calls; what depends on the processor at hand is left open (words.py) until that is known.
"""
