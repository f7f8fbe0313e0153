"""Two passes made of formulas, one of them changed, and the verdict about them."""

from collections.abc import Callable
from pathlib import Path

from parity.judge.align import Measured
from parity.judge.verdict import judge
from parity.report.result import Numerics
from tests.parity.pass_writer import Content, make_content, small_job, small_spec

Change = Callable[[Content], None]


def judged(
    tmp_path: Path, change: Change = lambda _: None, both: Change = lambda _: None, **spec: int
) -> Numerics:
    """The verdict about a clean torch pass and a jax pass after `change`; `both` is done to each."""
    sides = {}
    for side in ("torch", "jax"):
        content = make_content(small_job(tmp_path / side, side, small_spec(**spec)))
        both(content)
        if side == "jax":
            change(content)
        sides[side] = Measured(side, content.write())
    return judge(sides["torch"], sides["jax"])
