"""Presets, the rules a run obeys, the problem hash, the parameter table and the FLOPs."""

import dataclasses

import pytest

from spec.edits import CATALOGUE, Constants, constants, parse
from spec.errors import RuleError
from spec.precision import PROFILES
from spec.presets import preset, run_spec
from spec.run import AdamW, DataSpec, Execution
from spec.workloads import parameter_table, step_flops
from spec.workloads.gpt import GptSizes


def test_devices_multiply_the_batch_and_a_global_batch_fixes_it() -> None:
    assert run_spec("tiny").problem.global_batch == 8
    assert run_spec("tiny", devices=4).problem.global_batch == 16
    assert run_spec("tiny", devices=1, global_batch=8).problem == run_spec("tiny").problem


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "tinny"}, "did you mean tiny"),
        ({"steps": -1}, "--steps -1"),
        ({"devices": 0}, "--devices 0"),
        ({"global_batch": 6}, "multiple of 4"),
        ({"micro_batches": 3}, "multiple of 6"),
        ({"precision": "fp8"}, "f64, strict, tf32, bf16"),
        ({"precision": "tf32"}, "strict"),
        ({"seed": -1}, "-1"),
    ],
)
def test_a_run_that_cannot_be_says_why(changes, says) -> None:
    with pytest.raises(RuleError) as caught:
        run_spec(**({"name": "tiny"} | changes))
    assert says in caught.value.message()


@pytest.mark.parametrize("mode", ["graph", "graph+inductor"])
def test_graph_modes_are_refused_on_a_cpu(mode: str) -> None:
    with pytest.raises(RuleError, match="CUDA graph"):
        Execution(torch_mode=mode)
    assert Execution(device="cuda", torch_mode=mode).mode("torch") == mode


def test_heads_divide_the_width() -> None:
    with pytest.raises(RuleError, match="heads"):
        GptSizes(vocab=8, seq_len=8, num_layers=1, d_model=10, num_heads=4)


def test_the_hash_sees_the_problem_and_not_its_execution() -> None:
    spec = run_spec("tiny")
    assert (
        run_spec("tiny", execution=Execution(torch_mode="inductor")).problem.sha256() == spec.problem.sha256()
    )
    assert run_spec("tiny", devices=1, global_batch=8).problem.sha256() == spec.problem.sha256()
    hashes = {
        dataclasses.replace(spec.problem, **change).sha256()
        for change in (
            {},
            {"steps": 49},
            {"precision": "f64"},
            {"micro_batches": 1},
            {"seed_data": 9},
            {"optimizer": AdamW(eps=1e-7)},
            {"data": DataSpec(kind="text")},
        )
    }
    assert len(hashes) == 7


def test_the_path_of_the_data_is_not_part_of_the_hash() -> None:
    problems = [
        dataclasses.replace(run_spec("tiny").problem, data=DataSpec(kind="text", path=path))
        for path in ("/a", "/b")
    ]
    assert problems[0].sha256() == problems[1].sha256()


def test_parameter_counts_are_the_published_ones() -> None:
    """GPT-2 small has 124,439,808 parameters with its own vocabulary of 50257, as released in 2019."""
    sizes = dataclasses.replace(preset("gpt2-124m").problem.sizes, vocab=50257)
    assert sum(row.size for row in parameter_table(sizes)) == 124_439_808
    assert (
        sum(row.size for row in preset("toy-mlp").problem.parameter_table()) == 32 * 128 + 128 + 128 * 32 + 32
    )


def test_the_decayed_group_is_matrices_and_embeddings() -> None:
    for row in preset("tiny").problem.parameter_table():
        assert row.decayed == (len(row.shape) == 2) == (row.layout != "vector"), row.name


def test_step_flops_of_a_layer_counted_by_hand() -> None:
    sizes = GptSizes(vocab=7, seq_len=5, num_layers=1, d_model=4, num_heads=2)
    tokens, forward = 3 * 5, 0
    for d_in, d_out in ((4, 12), (4, 4), (4, 16), (16, 4), (4, 7)):
        forward += 2 * tokens * d_in * d_out
    forward += 2 * (2 * tokens * 5 * 4)
    assert step_flops(sizes, 3) == 3 * forward


def test_every_edit_changes_one_constant() -> None:
    problem = run_spec("tiny").problem
    plain = constants(problem)
    for name in (field.name for field in dataclasses.fields(Constants)):
        kind, own = CATALOGUE[name], getattr(plain, name)
        value = next(value for value in kind.values if value != own)
        edited = constants(problem, [parse(f"{name}={value:g}")])
        changed = [
            f.name for f in dataclasses.fields(Constants) if getattr(edited, f.name) != getattr(plain, f.name)
        ]
        assert changed == [name]


@pytest.mark.parametrize(
    "text", ["colour=1", "clip_eps", "clip_eps=small", "clip_eps=nan", "schedule_offset=0.5", "gelu_erf=0.3"]
)
def test_edits_that_are_none(text: str) -> None:
    with pytest.raises(RuleError):
        parse(text)


def test_the_precision_table_has_no_empty_cell() -> None:
    for profile in PROFILES.values():
        for field in dataclasses.fields(profile):
            assert getattr(profile, field.name) not in ("", None), (profile.name, field.name)
    assert [PROFILES[name].unit_roundoff for name in ("f64", "strict", "tf32", "bf16")] == [
        2**-53,
        2**-24,
        2**-11,
        2**-8,
    ]
