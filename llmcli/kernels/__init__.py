"""Decode on a CPU, compiled by numba: one function for all layers of one step, and single products.

numba takes a good part of a second to import and seconds to compile for a new machine, so this
room is entered through `team.start`, which does both beside the loading of weights. It knows
addresses and sizes; what a decoder is, model/fused.py knows.
"""
