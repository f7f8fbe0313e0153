"""XLA on CPUs spends most of a test's time in LLVM's optimiser, which is no matter of these tests."""

import os

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()
