"""The pytest plugin and the library, with stand-ins for the sides: what they say, skip, note and refuse."""

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.parity.conftest import FAKES, ROOT

pytest_plugins = ["pytester"]

SAME = "def test_mine(parity):\n    assert parity.assert_same('tiny', steps=2, devices=1).exit_code == 0\n"


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A user's suite beside stand-ins for both sides."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKES), str(ROOT)]))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    return pytester


def run(suite: pytest.Pytester, text: str, *words: str) -> pytest.RunResult:
    suite.makepyfile(text)
    return suite.runpytest_subprocess("-p", "parity.pytest_plugin", "-p", "no:cacheprovider", *words)


def test_a_pair_that_is_the_same_passes_and_is_summed_up(suite: pytest.Pytester) -> None:
    done = run(suite, SAME, "--junitxml=junit.xml")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["parity: torch *, jax *, device auto", "*= parity =*", "tiny*SAME*0.0e+00*"])
    properties = {
        item.get("name"): item.get("value")
        for item in ElementTree.parse(suite.path / "junit.xml").iter("property")
    }
    assert properties["parity.verdict"] == "SAME"
    assert (Path(str(properties["parity.folder"])) / "result.json").exists()


def test_a_difference_fails_with_the_report(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_FAKE_JAX", "usage")
    done = run(suite, SAME)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*FAILED  jax in*token 300, vocabulary 256*", "run: */runs/0001_tiny*"])
    done.stdout.no_fnmatch_line("*Traceback*")


def test_bad_arguments_fail_in_a_few_lines(suite: pytest.Pytester) -> None:
    done = run(suite, "def test_mine(parity):\n    parity.run('tiy')\n")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*did you mean tiny*"])


def test_options_of_the_session_serve_where_a_test_gives_none(suite: pytest.Pytester) -> None:
    text = "def test_mine(parity):\n    r = parity.run('tiny', devices=1)\n    assert r.numerics.steps == 3\n"
    run(suite, text, "--parity-steps=3", "--parity-out=kept").assert_outcomes(passed=1)
    assert len(list((suite.path / "kept").glob("0001_tiny*"))) == 1


def test_a_missing_gpu_skips_with_the_reason(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = run(suite, SAME, "--parity-device=cuda", "-rs")
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(["*SKIPPED*device cuda, and this machine has no NVIDIA GPU*"])


def test_a_missing_framework_skips_with_the_reason(suite: pytest.Pytester) -> None:
    text = "import parity.pytest_plugin as p\np._PACKAGES['jax'] = ('no_such_package',)\n" + SAME
    done = run(suite, text, "-rs")
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(["*SKIPPED*the jax side needs no_such_package*"])


def test_it_refuses_to_time_under_xdist(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """xdist's own variable stands for it: a worker sets it."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    done = run(suite, SAME, "--parity-time")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*refuses to time under xdist*"])
    run(suite, SAME).assert_outcomes(passed=1)


def test_the_library_returns_what_it_writes(suite: pytest.Pytester) -> None:
    text = """
    import json
    from pathlib import Path

    import pytest

    import parity
    from spec.errors import RuleError

    def test_results():
        result = parity.run("tiny", steps=2, devices=1)
        kept = json.loads((Path(result.runs[0].folder) / "result.json").read_text())
        assert (result.verdict, kept["verdict"], kept["command"]) == ("SAME", "SAME", "run")
        assert result.speed.torch.step_ms.n > 0
        assert parity.assert_same("tiny", steps=2, devices=1).speed is None
        with pytest.raises(RuleError, match="did you mean tiny"):
            parity.run("tiy")
        with pytest.raises(AttributeError):
            parity.no_such_thing

    def test_a_difference_raises(monkeypatch):
        monkeypatch.setenv("PARITY_FAKE_JAX", "crash")
        with pytest.raises(AssertionError, match="ZeroDivisionError"):
            parity.assert_same("tiny", steps=2, devices=1)
    """
    run(suite, text).assert_outcomes(passed=2)
