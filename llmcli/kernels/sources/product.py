"""One matrix times one vector or several."""

from llmcli.kernels import layout
from llmcli.kernels.sources.dots import rows_times
from llmcli.kernels.sources.layer import row_of
from llmcli.kernels.sources.meeting import share
from llmcli.kernels.sources.products import rows_times_each
from llmcli.kernels.sources.words import inlined, ints


@inlined
def product(me, team, job_at):
    """This thread's share of Y [n, rows] = X [n, columns] W^T + b of a job. Returns 0."""
    job = ints(job_at, 2 * layout.JOB)
    matrix, count = ints(job[2 * layout.MATRIX], layout.FIELDS), job[2 * layout.COUNT]
    start, stop = share(matrix[layout.ROWS], me, team)
    room = row_of(job, layout.SCRATCH, me)
    if count == 1:
        x, y = row_of(job, layout.X, 0), row_of(job, layout.Y, 0)
        rows_times(matrix, x, room, y, start, stop)
    else:
        x, x_width = job[2 * layout.X], job[2 * layout.X + 1]
        y, y_width = job[2 * layout.Y], job[2 * layout.Y + 1]
        barrier = job[2 * layout.BARRIER]
        rows_times_each(matrix, count, x, x_width, room, y, y_width, start, stop, barrier)
    return 0
