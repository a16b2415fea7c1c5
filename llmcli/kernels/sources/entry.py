"""The one function that is compiled, with all that it calls. Importing this imports numba."""

from llmcli.kernels.layout import PRODUCT, STEP
from llmcli.kernels.sources.product import product
from llmcli.kernels.sources.several import several
from llmcli.kernels.sources.step import step
from llmcli.kernels.sources.words import inlined


@inlined
def run(which, me, team, job):
    """A kernel by its number, for member `me` of `team`, on the job at an address."""
    if which == PRODUCT:
        return product(me, team, job)
    if which == STEP:
        return step(me, team, job)
    return several(me, team, job)
