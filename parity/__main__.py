"""`python -m parity`: the command line where the `parity` script is not installed."""

import sys

from parity.cli import main

if __name__ == "__main__":
    sys.exit(main())
