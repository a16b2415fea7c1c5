"""What inspect-layers computes, returned as plain frozen data. Must not know terminals or argv.

What follows from a config and from headers imports no torch; what needs weights does. So do
`plan`, which asks torch for this machine's devices, dtypes and pace, and `positions`, which checks
the decoder's own rotation.
"""
