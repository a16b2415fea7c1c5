"""How threads divide the work and wait for one another."""

from llmcli.kernels.layout import ABANDONED, ARRIVED
from llmcli.kernels.sources.words import add_atomically, give_way, inlined, load_atomically

# Threads wait by looking; after so many looks they let others run, if the machine is busy.
_LOOKS = 2000


@inlined
def abandoned(barrier):
    """Whether somebody gave up, so that what is left need not be done."""
    return load_atomically(barrier + ABANDONED * 8) != 0


@inlined
def meet(barrier, team, round_):
    """Wait until all have come; false where somebody gave up. `barrier` is its address."""
    arrived = barrier + ARRIVED * 8
    if abandoned(barrier):
        return False
    add_atomically(arrived, 1)
    goal, looks = team * round_, 0
    while load_atomically(arrived) < goal:
        looks += 1
        if looks % _LOOKS == 0:
            if abandoned(barrier):
                return False
            give_way()
    return True


@inlined
def share(total, me, team):
    """Rows start ... stop of this thread, cut at multiples of 8."""
    units = (total + 7) // 8
    return min(total, units * me // team * 8), min(total, units * (me + 1) // team * 8)
