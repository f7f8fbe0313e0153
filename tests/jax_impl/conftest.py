"""XLA on CPUs spends most of a test's time in LLVM's optimiser, which is no matter of these tests.

Processes that tests start inherit the flag. Set before JAX makes its first program.
"""

import os

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()
