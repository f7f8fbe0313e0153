"""Every edit of the catalogue, planted on the torch side of a small pair, is found, undone and confirmed.

The pair's own files are right, so what undoes a planted edit is what stands in them; a search is not told.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from parity.explain import reproduction
from spec.edits import CATALOGUE, parse, show
from tests.parity.conftest import environ
from tests.parity.explained.conftest import PAIRS
from tests.parity.explained.planting import Planting

UNDONE = {
    "clip_eps=1e-2": "clip_eps=0",
    "max_norm=0.5": "max_norm=1",
    "clip_parts=1": "clip_parts=0",
    "adam_eps=1e-4": "adam_eps=1e-08",
    "adam_eps_place=2": "adam_eps_place=0",
    "bias_correction=0": "bias_correction=1",
    "beta1=0.85": "beta1=0.9",
    "beta2=0.97": "beta2=0.95",
    "weight_decay=0.03": "weight_decay=0.1",
    "decay_form=1": "decay_form=0",
    "decay_all=1": "decay_all=0",
    "decay_tensor@ln.weight=1": "decay_tensor@ln.weight=0",
    "schedule_offset=1": "schedule_offset=0",
    "warmup_offset=1": "warmup_offset=0",
    "schedule_end=-1": "schedule_end=0",
    "loss_scale=1.25": "loss_scale=1",
    "grad_scale=0.5": "grad_scale=1",
    "loss_mean=1": "loss_mean=0",
    "layernorm_eps=1e-3": "layernorm_eps=1e-05",
    "rmsnorm_eps=3e-5": "rmsnorm_eps=1e-06",
    "gelu_erf=1": "gelu_erf=0",
    "relu_tie=1": "relu_tie=0",
    "attention_scale=0.7": "attention_scale=1",
    "rope_theta=500000": "rope_theta=10000",
    "constant_bf16=1": "constant_bf16=0",
    "softmax_bits=16": "softmax_bits=64",
    "matmul_bits=10": "matmul_bits=0",
    "transpose@q_proj.weight=1": "transpose@q_proj.weight=1",
    "rope_layout=4": "rope_layout=4",
    "label_shift=1": "label_shift=0",
}
# Padding (1, 1) of an even size at stride 2 never reads its last row: it is the start that is padded.
# A mask of -10000 is as good as one of -1e9.
UNDONE |= {"conv_padding=1": "conv_padding=2", "mask_value=-10": "mask_value=-10000"}
NOT_IN_THE_KITCHEN = {"batchnorm_eps", "batchnorm_momentum", "batchnorm_biased", "qkv_split"}
# Seen where means are large, which they are not there: tests/corpus has such a pair.
NOT_IN_THE_KITCHEN |= {"layernorm_fast_variance"}
# Its layers have no numbers.
NOT_IN_THE_KITCHEN |= {"decay_stacked"}
NOTHING_TO_COMPILE = {"excess_precision"}


def test_none_is_forgotten() -> None:
    kinds = {parse(text).name for text in UNDONE} | NOT_IN_THE_KITCHEN | NOTHING_TO_COMPILE
    assert kinds == {name for name, kind in CATALOGUE.items() if kind.reach != "refused"}


@pytest.mark.slow  # A run is prepared in 50 s, and the whole catalogue is tried for each of them.
@pytest.mark.parametrize("planted", UNDONE)
def test_a_planted_edit_is_found_and_confirmed(planting: Planting, planted: str) -> None:
    found = planting.search(planted)
    assert [show(edit) for edit in found.edits] == [UNDONE[planted]]
    assert not found.left.failing and not found.held_out.failing
    assert len(found.steps) == 1 and found.steps[0].after <= 1e-12 < found.steps[0].before
    assert [show(one.edit) for one in found.steps[0].confirmed] == [UNDONE[planted]]


@pytest.mark.slow  # As above.
@pytest.mark.parametrize(
    ("planted", "undone"),
    [
        (("relu_tie=1", "weight_decay=0.03"), ["relu_tie=0", "weight_decay=0.1"]),
        (
            ("layernorm_eps=1e-3", "gelu_erf=1", "clip_eps=1e-2"),
            ["layernorm_eps=1e-05", "gelu_erf=0", "clip_eps=0"],
        ),
        (("adam_eps=1e-4", "weight_decay=0.03"), ["adam_eps=1e-08", "weight_decay=0.1"]),
        # Both meet in the output of the attention, which neither closes alone.
        (("attention_scale=0.7", "mask_value=-10"), ["attention_scale=1", "mask_value=-10000"]),
    ],
)
def test_several_are_peeled_one_by_one(
    planting: Planting, planted: tuple[str, ...], undone: list[str]
) -> None:
    found = planting.search(*planted)
    assert sorted(show(edit) for edit in found.edits) == sorted(undone)
    assert not found.left.failing and not found.held_out.failing


@pytest.mark.slow  # As above.
def test_equal_sides_have_nothing_to_explain(planting: Planting) -> None:
    found = planting.search()
    assert not found.steps and not found.left.failing and not found.held_out.failing


@pytest.mark.slow  # Tries the whole catalogue.
def test_signatures_tell_what_a_difference_looks_like(planting: Planting) -> None:
    words = [look.name for look in planting.search("clip_eps=1e-2").steps[0].signatures]
    assert words[0] == "one ratio for all tensors"
    words = [look.name for look in planting.search("relu_tie=1").steps[0].signatures]
    assert words[0] == "gradients alone"


@pytest.mark.slow  # Tries the whole catalogue.
def test_what_no_edit_explains_is_said_and_can_be_reproduced(planting: Planting, tmp_path: Path) -> None:
    side = tmp_path / "torch_side.py"
    written = (PAIRS / "kitchen" / "torch_side.py").read_text()
    side.write_text(written.replace("torch.tanh(self.conv", "torch.sin(self.conv"))
    found, setting = planting.search_in(side)
    assert not found.edits and found.left.phase == "act" and not found.steps[-1].confirmed
    first = found.left.failing[0]
    folder = reproduction.write(setting, found.edits, first, tmp_path / "reproduction")
    again = subprocess.run(
        [sys.executable, folder / "reproduce.py"],
        env=environ(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert again.returncode == 1, again.stderr
    assert f"act/{first.tensor}, step 0: RMS of the difference" in again.stdout
