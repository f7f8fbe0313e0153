"""Several steps in one launch are the steps one by one; a mode says how many; metrics of all are kept."""

import json

import numpy as np
import pytest

from jax_impl import work
from jax_impl.xla import hlo
from jax_impl.xla.several import stage_several
from spec import protocol
from spec.errors import RuleError
from spec.jit import JitOptions, jit_options
from spec.run import Execution
from tests.jax_impl.jobs import job, losses_of, manifest_of, steps_of
from tests.jax_impl.small import STATE, make_trainer, mlp_problem, relative_difference, train

NESTED = """\
HloModule jit_train_steps

%inner (p: f32[8]) -> f32[8] {
  ROOT %r = f32[8]{0} all-reduce(%p), channel_id=1, to_apply=%add
}

%outer (p: f32[8]) -> f32[8] {
  %loop = f32[8]{0} while(%p), condition=%condition, body=%inner
  ROOT %r = f32[9]{0} all-reduce(%loop), channel_id=1, to_apply=%add
}

ENTRY %main (a: f32[8]) -> f32[8] {
  ROOT %loop = f32[8]{0} while(%a), condition=%condition, body=%outer
}
"""


def test_loops_within_loops_are_counted() -> None:
    assert [(item.elements, item.loops) for item in hlo.collectives(NESTED)] == [(8, 2), (9, 1)]


def test_several_steps_are_the_steps_one_by_one(jax_x64) -> None:
    problem = mlp_problem(precision="f64", micro_batches=2)
    single, several = make_trainer(problem), make_trainer(problem, "jit:k3")
    expected = train(single, 7)
    several.steps([several.feed.rows(step) for step in range(3)])
    several.steps([several.feed.rows(step) for step in range(3, 6)])
    # Metrics of two launches are kept, each step's own.
    losses = [several.metrics(step).loss for step in range(6)]
    several.step(several.feed.rows(6))
    losses.append(several.metrics().loss)
    assert losses == pytest.approx(expected, rel=1e-14)
    assert relative_difference(several.export(STATE), single.export(STATE)) < 1e-13
    assert (several.num_steps, several.applied) == (7, 7)
    proven = several.compiled.proven
    assert (proven["steps_per_launch"], proven["programs_compiled"]) == (3, 1)
    assert proven["state_bytes_in_place"] == 3 * 8 * 66 + 2 * 4


def test_batches_of_one_launch_are_alike() -> None:
    trainer = make_trainer(mlp_problem(), "jit:k2")
    rows = trainer.feed.rows(0)
    with pytest.raises(RuleError, match="of the first"):
        trainer.steps([rows, {name: array[:4] for name, array in rows.items()}])


def test_a_job_launches_what_it_observes_alone_and_the_rest_together(tmp_path) -> None:
    modes = {"one": "jit", "three": "jit:k3"}
    for name, mode in modes.items():
        asked = job(
            tmp_path / name, problem=mlp_problem(), mode=mode, steps=9, observe=("grad@0", "param@last")
        )
        trainer = make_trainer(mlp_problem(), mode)
        assert protocol.serve([str(asked.write())], lambda job, t=trainer: work.do(job, t.ranks), 0) == 0
    assert [line["step"] for line in steps_of(tmp_path / "three")] == list(range(9))
    assert losses_of(tmp_path / "three") == pytest.approx(losses_of(tmp_path / "one"), rel=2e-6)
    manifest = manifest_of(tmp_path / "three")
    assert (manifest["mode_ran"], manifest["capture"]["steps_per_launch"]) == ("jit:k3", 3)
    digests = [json.loads((tmp_path / name / "digest.rank0.json").read_text()) for name in modes]
    assert digests[0]["step"] == digests[1]["step"] == 9


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("jit", JitOptions()),
        ("baseline:jit", JitOptions()),
        ("jit:k8+remat", JitOptions(steps_per_launch=8, remat=True)),
        ("jit:apart+oneprocess", JitOptions(arrays="apart", one_process=True)),
        ("jit:buckets+overlap", JitOptions(arrays="buckets", overlap=True)),
        ("jit:off+scan", JitOptions(command_buffers="off", scan_layers=True)),
        ("jit:all+min1+concurrent", JitOptions(command_buffers="all", smallest_buffer=1, concurrent=True)),
    ],
)
def test_modes_say_how_a_step_is_executed(mode, options) -> None:
    assert jit_options(mode) == options


@pytest.mark.parametrize(
    "mode", ["jit:", "jit:k1", "jit:kk", "jit:of", "jit:off+all", "jit:apart+buckets", "jit:remat+remat"]
)
def test_a_mode_with_a_word_too_many_is_refused(mode) -> None:
    with pytest.raises(RuleError, match="jit mode"):
        Execution(jax_mode=mode)


def test_rows_of_several_steps_lie_step_by_step() -> None:
    trainer = make_trainer(mlp_problem())
    many = [trainer.feed.rows(step) for step in range(2)]
    staged = stage_several(many, trainer.stage)
    for step, rows in enumerate(many):
        found = trainer.stage.packing.unpack({dtype: array[step] for dtype, array in staged.items()})
        assert {name: np.asarray(array).tobytes() for name, array in found.items()} == {
            name: array.tobytes() for name, array in rows.items()
        }
