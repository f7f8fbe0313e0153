"""A run that changes sides: who trains what and when, and what the judge makes of the pieces."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity import turns
from parity.handoff import Stretch, parse_handoff
from parity.judge.align import Measured
from parity.judge.chain import Chain, describe
from parity.judge.verdict import judge
from parity.plan import Plan
from parity.report.result import Numerics
from spec import record
from spec.errors import RuleError
from spec.job import Job, Timing
from spec.weights import state_digest
from tests.parity.pass_writer import Content, make_content, small_job, small_spec

BOTH = ("torch", "jax")


def test_sides_take_turns() -> None:
    assert parse_handoff("2,3", BOTH, 4) == (
        Stretch(side="torch", first=0, stop=2),
        Stretch(side="jax", first=2, stop=3),
        Stretch(side="torch", first=3, stop=4),
    )
    assert parse_handoff(None, BOTH, 4) == ()


@pytest.mark.parametrize("text", ["", "0", "4", "3,2", "2,2", "x", "1,", "-1", "1.5", "9"])
def test_steps_that_do_not_rise_within_the_run_are_refused(text: str) -> None:
    with pytest.raises(RuleError, match="rising steps"):
        parse_handoff(text, BOTH, 4)


def test_one_side_has_nobody_to_hand_over_to() -> None:
    with pytest.raises(RuleError, match="two sides"):
        parse_handoff("2", ("jax",), 4)


def launches(text: str, timing: Timing | None) -> list[list[Job]]:
    spec = small_spec(steps=6)
    plan = Plan(spec=spec, backends=BOTH, timeout_s=9.0, handoff=parse_handoff(text, BOTH, 6))
    return [list(turn.jobs) for turn in turns.judged(plan, Path("/run"), timing)]


def test_stretches_share_launches_and_each_takes_the_checkpoint_before() -> None:
    planned = launches("2,4", Timing())
    assert [[Path(job.out).name for job in jobs] for jobs in planned] == [
        ["001_torch_run", "002_torch_time", "003_torch_handoff"],
        ["004_jax_run", "005_jax_time", "006_jax_time", "007_jax_handoff"],
        ["008_torch_time", "009_torch_handoff"],
    ]
    first, second, third = (jobs[-1] for jobs in planned)
    assert (first.resume, first.steps, first.save_every) == (None, 2, 2)
    assert second.resume == "/run/passes/003_torch_handoff/checkpoints/step000002"
    assert (second.steps, second.save_every, second.observe) == (4, 4, ())
    assert third.resume == "/run/passes/007_jax_handoff/checkpoints/step000004"
    assert (third.steps, third.save_every) == (6, None)
    assert {*first.observe, *third.observe} == {*planned[0][0].observe}


def test_without_timing_new_launches_are_added() -> None:
    assert [jobs[-1].side for jobs in launches("1,2,3", None)] == ["torch", "jax", "torch", "jax"]


def stretch(folder: Path, side: str, first: int, stop: int, resume: str | None) -> Content:
    """What a side would write of some of the steps."""
    whole = small_job(folder, side)
    observe = (whole.observe[:2] if first == 0 else ()) + (whole.observe[2:] if stop == 4 else ())
    job = dataclasses.replace(whole, purpose="handoff", steps=stop, resume=resume, observe=observe)
    content = make_content(job)
    content.steps = [lines[first:] for lines in content.steps]
    content.digests = [digest | {"step": stop, "param": f"after {stop}"} for digest in content.digests]
    if first:
        content.manifest |= {"init_digest": f"after {first}", "init_sha256": {}}
    return content


def handed_off(folder: Path, change: Any = lambda contents: None) -> tuple[Chain, dict[str, Measured]]:
    """Steps 0 and 1 on torch, 2 on jax, 3 on torch; and the whole run of each side."""
    contents = [
        stretch(folder / "a", "torch", 0, 2, None),
        stretch(folder / "b", "jax", 2, 3, "a/checkpoints/step000002"),
        stretch(folder / "c", "torch", 3, 4, "b/checkpoints/step000003"),
    ]
    change(contents)
    parts = tuple(Measured(f"{content.job.side}", content.write()) for content in contents)
    whole = {side: Measured(side, make_content(small_job(folder / side, side)).write()) for side in BOTH}
    return Chain("torch-jax-torch", parts[0].folder, parts=parts), whole


def judged(chain: Chain, whole: Measured) -> Numerics:
    return judge(chain, whole, chain.handed_over())


def test_clean_stretches_are_the_same_as_the_whole(tmp_path: Path) -> None:
    chain, whole = handed_off(tmp_path)
    for side in BOTH:
        numerics = judged(chain, whole[side])
        assert (numerics.verdict, numerics.steps, numerics.reasons) == ("SAME", 4, [])
        assert {item.step for item in numerics.tensors} == {0, 3}
    stretches = describe(chain, whole).stretches
    assert [(item.side, item.first_step, item.stop) for item in stretches] == [
        ("torch", 0, 2),
        ("jax", 2, 3),
        ("torch", 3, 4),
    ]
    assert stretches[1].loss_rel == {"torch": 0.0, "jax": 0.0}


def test_a_loss_that_jumps_where_sides_change_is_named(tmp_path: Path) -> None:
    def change(contents: list[Content]) -> None:
        for lines in contents[1].steps:
            lines[0] |= record.float_fields("loss", 5.3)

    chain, whole = handed_off(tmp_path, change)
    numerics = judged(chain, whole["torch"])
    assert numerics.verdict == "DIFFERENT" and numerics.first_divergence is not None
    assert (numerics.first_divergence.step, numerics.first_divergence.phase) == (2, "loss")
    assert (describe(chain, whole).stretches[1].loss_rel["jax"] or 0) > 1e-3


def test_parameters_that_changed_on_the_way_are_named(tmp_path: Path) -> None:
    def change(contents: list[Content]) -> None:
        contents[2].manifest["init_digest"] = state_digest({"x": np.zeros(1)})

    chain, whole = handed_off(tmp_path, change)
    numerics = judged(chain, whole["jax"])
    assert numerics.verdict == "DIFFERENT" and numerics.first_divergence is not None
    found = numerics.first_divergence
    assert (found.step, found.phase, found.class_) == (3, "handoff", "state")


def test_other_rows_behind_the_change_cannot_be_compared(tmp_path: Path) -> None:
    def change(contents: list[Content]) -> None:
        contents[1].steps[0][0]["batch_digest"] = f"{1:016x}"

    chain, whole = handed_off(tmp_path, change)
    numerics = judged(chain, whole["torch"])
    assert numerics.verdict == "NOT_COMPARABLE" and "batch of step 2" in numerics.reasons[0]


def test_a_stretch_that_did_not_finish_fails(tmp_path: Path) -> None:
    def change(contents: list[Content]) -> None:
        contents[2].finished = False

    chain, whole = handed_off(tmp_path, change)
    assert judged(chain, whole["torch"]).verdict == "FAILED"
