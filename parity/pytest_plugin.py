"""The pytest plugin: a fixture `parity` that runs pairs and presets inside a test suite.

    def test_my_model(parity):
        parity.assert_same("my_pair", steps=20)

A failed test shows what `parity run` prints. Verdicts stand in a table at the end of the session and as
properties in JUnit files. Must not: import a framework, or more than pytest before a test asks for it.
"""

import os
from collections.abc import Iterator
from importlib import metadata, util
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from parity.report.result import Result

_PACKAGES = {"torch": ("torch",), "jax": ("jax", "flax", "optax")}
_PREFIX = "parity."
_COLUMNS = ("target", "verdict", "loss max rel", "first divergence", "seconds", "folder")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options `--parity-*`; what a test gives itself goes before them."""
    group = parser.getgroup("parity", "PyTorch and JAX compared")
    group.addoption("--parity-steps", type=int, metavar="N", help="steps where a test gives none")
    group.addoption("--parity-precision", metavar="P", help="f64, strict, tf32 or bf16")
    group.addoption("--parity-device", default="auto", metavar="auto|cpu|cuda", help="device of both sides")
    group.addoption("--parity-out", default="runs", metavar="DIR", help="folder of run folders")
    group.addoption("--parity-time", action="store_true", help="also measure speed; not under xdist")


def pytest_configure(config: pytest.Config) -> None:
    """Refuses to time several tests at once.

    Raises:
      pytest.UsageError: --parity-time with xdist's workers.
    """
    if config.getoption("--parity-time") and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError(
            "--parity-time measures speed, and xdist runs tests at once on the same cores: leave one out"
        )


def pytest_report_header(config: pytest.Config) -> str:
    """`parity: torch 2.13.0, jax 0.10.2, device auto`."""
    found = ", ".join(f"{side} {_version(side)}" for side in _PACKAGES)
    return f"parity: {found}, device {config.getoption('--parity-device')}"


def _version(side: str) -> str:
    return metadata.version(side) if util.find_spec(side) else "missing"


class Parity:
    """What the fixture gives: `parity.run` and `parity.assert_same` of the library, under the session's
    options."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._config, self._node = request.config, request.node

    def run(self, target: str | os.PathLike[str], **options: Any) -> "Result":
        """`parity.run`; skips where a framework or a GPU is missing. See `parity.library.run`."""
        chosen = self._chosen(options)
        self._skip_without(chosen)
        if chosen["time"] and _under_xdist(self._config):
            pytest.fail(
                "parity refuses to time under xdist: other tests share the cores. Give time=False.",
                pytrace=False,
            )
        from parity import library
        from spec.errors import RuleError

        try:
            result = library.run(target, **chosen)
        except RuleError as error:
            pytest.fail(error.message(), pytrace=False)
        self._note(str(target), result)
        return result

    def assert_same(self, target: str | os.PathLike[str], **options: Any) -> "Result":
        """Fails unless the verdict is SAME, and shows the report."""
        __tracebackhide__ = True
        from parity import library

        result = self.run(target, **options)
        if result.verdict != "SAME":
            pytest.fail(library.failure_text(result), pytrace=False)
        return result

    def _chosen(self, options: dict[str, Any]) -> dict[str, Any]:
        """The test's own options, the session's where it gives none."""
        names = ("steps", "precision", "device", "out", "time")
        return {name: self._config.getoption(f"--parity-{name}") for name in names} | options

    def _skip_without(self, chosen: dict[str, Any]) -> None:
        for side in str(chosen.get("backend", "torch,jax")).split(","):
            missing = [name for name in _PACKAGES.get(side, ()) if util.find_spec(name) is None]
            if missing:
                pytest.skip(f"parity: the {side} side needs {', '.join(missing)}, not installed")
        if chosen["device"] == "cuda":
            from parity.devices import count_gpus

            if not count_gpus():
                pytest.skip("parity: device cuda, and this machine has no NVIDIA GPU")

    def _note(self, target: str, result: "Result") -> None:
        """Properties of the test, which reach JUnit files and, from xdist's workers, the summary."""
        numerics = result.numerics
        loss = numerics.loss.max_rel if numerics and numerics.loss else None
        divergence = numerics.first_divergence if numerics else None
        values = {
            "target": target,
            "verdict": result.verdict or "none",
            "loss max rel": "-" if loss is None else f"{loss:.1e}",
            "first divergence": _where(divergence) if divergence else "-",
            "seconds": f"{result.seconds.total:.1f}",
            "folder": result.runs[0].folder,
        }
        self._node.user_properties += [(_PREFIX + name, value) for name, value in values.items()]


def _where(divergence: Any) -> str:
    return f"step {divergence.step} {divergence.phase} {divergence.tensor or ''}".rstrip()


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Parity:
    """Runs pairs and presets; see `Parity`."""
    return Parity(request)


def _under_xdist(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput") or "PYTEST_XDIST_WORKER" in os.environ


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line a run, in the order in which the tests ended."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    rows = [row for report in reports for row in _rows(report)]
    if not rows:
        return
    terminalreporter.section("parity")
    widths = [max(len(row[k]) for row in [_COLUMNS, *rows]) for k in range(len(_COLUMNS))]
    for row in [_COLUMNS, *rows]:
        terminalreporter.write_line(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        )


def _rows(report: Any) -> Iterator[tuple[str, ...]]:
    """The runs that a test noted; its report of the call alone has them once."""
    if getattr(report, "when", None) != "call":
        return
    noted = [(name.removeprefix(_PREFIX), str(value)) for name, value in report.user_properties]
    for start in (k for k, (name, _) in enumerate(noted) if name == _COLUMNS[0]):
        yield tuple(value for _, value in noted[start : start + len(_COLUMNS)])
