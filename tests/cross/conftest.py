"""XLA on CPUs spends most of a test's time in LLVM's optimiser, which is no matter of these tests."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _little_llvm() -> Iterator[None]:
    """For processes that tests start, and for this one if nothing was compiled in it yet."""
    with pytest.MonkeyPatch.context() as patch:
        flags = os.environ.get("XLA_FLAGS", "")
        patch.setenv("XLA_FLAGS", f"{flags} --xla_backend_optimization_level=0".strip())
        yield
