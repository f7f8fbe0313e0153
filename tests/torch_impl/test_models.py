"""Models against references not written here: transformers' GPT-2, and the MLP's derivative in NumPy.

Legend: B rows, T positions, V vocabulary, I, H, O widths.
"""

import numpy as np
import pytest
import torch

from spec.edits import Edit, constants
from spec.weights import init_parameters
from spec.workloads.gpt import IGNORE_LABEL
from tests.torch_impl.references import mlp_loss_and_gradients
from tests.torch_impl.small import GPT, MLP, gpt_problem, make_trainer, mlp_problem, relative_difference
from torch_impl.memory import Arena
from torch_impl.models import preset_side
from torch_impl.state import load

ATTENTION = {"c_attn": "qkv", "c_proj": "proj"}


def _hf_name(name: str) -> str:
    """`transformer.h.0.attn.c_attn.weight` for `blocks.0.attn.qkv.weight`."""
    for ours, theirs in (
        ("blocks.", "h."),
        ("ln1", "ln_1"),
        ("ln2", "ln_2"),
        ("attn.qkv", "attn.c_attn"),
        ("mlp.fc", "mlp.c_fc"),
        (".proj", ".c_proj"),
    ):
        name = name.replace(ours, theirs)
    return f"transformer.{name}"


def _hf_model(chosen, weights, dtype):
    """transformers' GPT-2 with our weights; its Conv1D holds matrices as (in, out)."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=GPT.vocab,
        n_positions=GPT.seq_len + 1,
        n_embd=GPT.d_model,
        n_layer=GPT.num_layers,
        n_head=GPT.num_heads,
        activation_function="gelu" if chosen.gelu_erf else "gelu_new",
        layer_norm_epsilon=chosen.layernorm_eps,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation="eager",
        bos_token_id=None,
        eos_token_id=None,
    )
    model = transformers.GPT2LMHeadModel(config).to(dtype)
    held = dict(model.named_parameters())
    with torch.no_grad():
        for name, values in weights.items():
            target = held.pop(_hf_name(name))
            source = torch.from_numpy(values)
            if _is_conv1d(name):
                source = source.T
            # One position more than ours, for the token whose label is never asked for.
            target[: len(source)].copy_(source)
    assert not held, held.keys()
    return model


def _is_conv1d(name: str) -> bool:
    return name.endswith("weight") and (".attn." in name or ".mlp." in name)


def _weights() -> dict[str, np.ndarray]:
    """Initial weights with every norm and bias moved off its special value."""
    generator = np.random.default_rng(0)
    weights = init_parameters(gpt_problem().parameter_table(), seed=0)
    return {
        name: values + generator.normal(0, 0.05, values.shape).astype(np.float32)
        for name, values in weights.items()
    }


@pytest.mark.parametrize(
    "edits", [(), (Edit(name="gelu_erf", value=1),), (Edit(name="layernorm_eps", value=1e-2),)]
)
@pytest.mark.parametrize(("precision", "tolerance"), [("f64", 1e-13), ("strict", 2e-6)])
def test_gpt_is_transformers_gpt2(precision, tolerance, edits) -> None:
    """Logits, loss and every gradient, relative to each tensor's RMS. What remains is rounding: 1e-15 was
    measured in float64 and 2e-7 in float32."""
    problem = gpt_problem(precision=precision)
    chosen = constants(problem, edits)
    weights = _weights()
    side, dtype = preset_side(problem, chosen), getattr(torch, problem.profile.master)
    arena = Arena(side.build(), problem.parameter_table(), problem.profile, torch.device("cpu"))
    load(arena, {f"param/{name}": values for name, values in weights.items()})

    text_BU = np.random.default_rng(1).integers(0, GPT.vocab, (3, GPT.seq_len + 1))
    labels_BT = text_BU[:, 1:].copy()
    labels_BT[1, 5:] = IGNORE_LABEL
    batch = {
        "tokens": torch.from_numpy(text_BU[:, :-1].astype(np.int32)),
        "labels": torch.from_numpy(labels_BT.astype(np.int32)),
    }
    loss_sum, count = side.loss(arena.module, batch)
    grads = torch.autograd.grad(loss_sum, arena.trainable)
    logits_BTV = arena.module(batch["tokens"])

    reference = _hf_model(chosen, weights, dtype)
    # Its own loss would cast float64 logits to float32.
    hf_logits_BTV = reference(input_ids=torch.from_numpy(text_BU)).logits[:, :-1]
    hf_losses_BT = -hf_logits_BTV.log_softmax(-1).gather(-1, torch.from_numpy(text_BU[:, 1:, None]))[..., 0]
    hf_loss_sum = hf_losses_BT[torch.from_numpy(labels_BT) != IGNORE_LABEL].sum()
    hf_loss_sum.backward()
    hf_grads = {name: parameter.grad for name, parameter in reference.named_parameters()}

    found = {slot.row.name: grad.numpy() for slot, grad in zip(arena.slots, grads, strict=True)}
    expected = {}
    for name, values in weights.items():
        grad = hf_grads[_hf_name(name)]
        expected[name] = (grad.T if _is_conv1d(name) else grad[: len(values)]).numpy()
    logits, hf_logits = logits_BTV.detach().numpy(), hf_logits_BTV.detach().numpy()
    assert int(count) == 3 * GPT.seq_len - (GPT.seq_len - 5)
    assert relative_difference({"logits": logits}, {"logits": hf_logits}) < tolerance
    assert abs(loss_sum.item() / hf_loss_sum.item() - 1) < tolerance
    assert relative_difference(found, expected) < tolerance


def test_gpt_edits_change_the_logits() -> None:
    """The reference above follows the edits; this shows that they are edits."""
    tokens_BT = torch.arange(GPT.seq_len, dtype=torch.int32)[None]
    logits = []
    for edits in ((), (Edit(name="gelu_erf", value=1),), (Edit(name="layernorm_eps", value=1e-2),)):
        trainer = make_trainer(gpt_problem(precision="f64"), edits=edits)
        logits.append(trainer.state.module(tokens_BT).detach().numpy())
    assert not np.array_equal(logits[0], logits[1])
    assert not np.array_equal(logits[0], logits[2])


def test_gpt_sees_no_future() -> None:
    trainer = make_trainer(gpt_problem())
    tokens_BT = torch.arange(GPT.seq_len, dtype=torch.int32)[None]
    changed_BT = tokens_BT.clone()
    changed_BT[0, 6] = 50
    one, other = trainer.state.module(tokens_BT), trainer.state.module(changed_BT)
    assert torch.equal(one[:, :6], other[:, :6])
    assert not torch.equal(one[:, 6:], other[:, 6:])


@pytest.mark.parametrize("problem", [gpt_problem(), mlp_problem()], ids=["gpt", "mlp"])
def test_modules_have_the_tables_parameters_and_no_memory(problem) -> None:
    module = preset_side(problem, constants(problem)).build()
    found = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    assert found == {row.name: row.shape for row in problem.parameter_table()}
    assert all(parameter.is_meta for parameter in module.parameters())


def test_mlp_is_its_formula() -> None:
    trainer = make_trainer(mlp_problem(precision="f64"))
    rows = trainer.feed.rows(0)
    weights = {key.removeprefix("param/"): array for key, array in trainer.export(["param"]).items()}
    loss_sum, gradients = mlp_loss_and_gradients(weights, *(rows[k].astype(np.float64) for k in "xy"))
    batch = {name: torch.from_numpy(array) for name, array in rows.items()}
    found_sum, count = trainer.side.loss(trainer.state.module, batch)
    grads = torch.autograd.grad(found_sum, list(trainer.state.module.parameters()))
    assert int(count) == 8 * MLP.d_out
    assert abs(found_sum.item() / loss_sum - 1) < 1e-14
    assert (
        relative_difference(dict(zip(gradients, (g.numpy() for g in grads), strict=True)), gradients) < 1e-13
    )


@pytest.mark.parametrize("problem", [gpt_problem(), mlp_problem()], ids=["gpt", "mlp"])
def test_losses_only_call_the_module(problem) -> None:
    """DDP and other wrappers hide a module's attributes."""
    trainer = make_trainer(problem)
    batch = {name: torch.from_numpy(array) for name, array in trainer.feed.rows(0).items()}
    loss_sum, _ = trainer.side.loss(lambda *inputs: trainer.state.module(*inputs), batch)
    assert loss_sum.isfinite()
