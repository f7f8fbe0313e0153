"""`python -m torch_impl` for tests of the referee."""

import sys

from tests.parity.fake_side import main

sys.exit(main("torch"))
