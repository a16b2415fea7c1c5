"""The entry point. Imports next to nothing before Ctrl-C is handled."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and exit: 0, 1 run time, 2 usage, 130 Ctrl-C, 141 broken pipe."""
    code = 130
    # Else torch's threads spin for a while after each operation, on the cores of the next one.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from llmcli.cli import interrupts, terminal

        interrupts.install(before_exit=terminal.restore)
        _fill_standard_streams()
        from llmcli.cli.dispatch import run

        code = run(sys.argv[1:])
        terminal.flush()
    except KeyboardInterrupt:
        pass
    # Nothing is left to tidy up, and tearing torch down takes longer than many answers.
    os._exit(code)


def _fill_standard_streams() -> None:
    """Open /dev/null in place of a closed standard stream, before a file lands on its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


if __name__ == "__main__":
    main()
