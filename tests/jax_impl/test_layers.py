"""GELU, cross-entropy and LayerNorm, their derivatives written out or computed twice, against float64."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from flax import nnx

from jax_impl.layers import LayerNorm, gelu, whole_cotangent
from jax_impl.loss import cross_entropy
from spec.workloads.gpt import IGNORE_LABEL

X_B = np.linspace(-12, 12, 4001)


def _by_tanh(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def _by_erf(x: np.ndarray) -> np.ndarray:
    return x * scipy.special.ndtr(x)


@pytest.mark.parametrize(("approximate", "formula"), [(True, _by_tanh), (False, _by_erf)])
def test_gelu_is_the_formula(approximate: bool, formula: Callable[[np.ndarray], np.ndarray]) -> None:
    with jax.enable_x64(True):
        value = gelu(jnp.asarray(X_B), approximate)
        slope = jax.grad(lambda x_B: gelu(x_B, approximate).sum())(jnp.asarray(X_B))
    step = 1e-5
    np.testing.assert_allclose(value, formula(X_B), rtol=0, atol=1e-14)
    np.testing.assert_allclose(slope, (formula(X_B + step) - formula(X_B - step)) / (2 * step), atol=1e-8)


@pytest.mark.parametrize("approximate", [True, False])
def test_gelu_of_bfloat16_rounds_once(approximate: bool) -> None:
    narrow_B = jnp.asarray(X_B, jnp.bfloat16)
    wide_B = gelu(narrow_B.astype(jnp.float32), approximate)
    np.testing.assert_array_equal(gelu(narrow_B, approximate), wide_B.astype(jnp.bfloat16))


@pytest.mark.parametrize("approximate", [True, False])
def test_gelu_keeps_its_argument_alone(approximate: bool) -> None:
    """An array of another shape or type, kept for the backward pass, would be memory that this saves."""
    _, backward = jax.vjp(lambda x_B: gelu(x_B, approximate), jnp.asarray(X_B, jnp.bfloat16))
    kept = [leaf for leaf in jax.tree.leaves(backward) if np.size(leaf) > 1]
    assert [(leaf.shape, leaf.dtype) for leaf in kept] == [(X_B.shape, jnp.bfloat16)]


def _logits_and_labels() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    labels_BT = random.integers(0, 7, (4, 5))
    labels_BT[1, 2:] = IGNORE_LABEL
    return random.normal(scale=4, size=(4, 5, 7)), labels_BT


def test_cross_entropy_and_its_gradient_are_the_formulas() -> None:
    logits_BTV, labels_BT = _logits_and_labels()
    counts_BT = labels_BT != IGNORE_LABEL
    softmax_BTV = scipy.special.softmax(logits_BTV, axis=-1)
    one_hot_BTV = np.eye(7)[np.where(counts_BT, labels_BT, 0)]
    losses_BT = -np.log((softmax_BTV * one_hot_BTV).sum(axis=-1))
    with jax.enable_x64(True):
        (loss, count), slope_BTV = jax.value_and_grad(cross_entropy, has_aux=True)(
            jnp.asarray(logits_BTV), jnp.asarray(labels_BT)
        )
    assert count == counts_BT.sum()
    np.testing.assert_allclose(loss, losses_BT[counts_BT].sum(), rtol=1e-14)
    np.testing.assert_allclose(slope_BTV, (softmax_BTV - one_hot_BTV) * counts_BT[..., None], atol=1e-15)


def test_the_gradient_of_logits_in_bfloat16_is_rounded_once() -> None:
    logits_BTV, labels_BT = _logits_and_labels()
    narrow_BTV = jnp.asarray(logits_BTV, jnp.bfloat16)
    slope = jax.grad(lambda logits_BTV: cross_entropy(logits_BTV, jnp.asarray(labels_BT))[0])
    wide_BTV = slope(narrow_BTV.astype(jnp.float32))
    np.testing.assert_array_equal(slope(narrow_BTV), wide_BTV.astype(jnp.bfloat16))


@pytest.mark.parametrize("label", [-2, 7, 1 << 20])
def test_a_label_that_is_no_class_makes_the_loss_nan(label: int) -> None:
    logits_BTV, labels_BT = _logits_and_labels()
    labels_BT[3, 4] = label
    assert np.isnan(cross_entropy(jnp.asarray(logits_BTV), jnp.asarray(labels_BT))[0])


def _norm(x_BC: Any, scale_C: Any, bias_C: Any, kind: type[nnx.LayerNorm]) -> jax.Array:
    """flax's or ours of a width of 24, with these values in it."""
    graph, params = nnx.split(kind(24, epsilon=1e-3, use_fast_variance=False, rngs=nnx.Rngs(0)))
    params["scale"], params["bias"] = nnx.Param(scale_C), nnx.Param(bias_C)
    return nnx.merge(graph, params)(x_BC)


def _norm_arguments(dtype: str) -> list[jax.Array]:
    random = np.random.default_rng(5)
    shapes = (random.normal(3, 2, (6, 5, 24)), random.normal(1, 0.2, 24), random.normal(0, 0.2, 24))
    return [jnp.asarray(values, dtype) for values in shapes]


def _and_slopes(kind: type[nnx.LayerNorm], arguments: list[jax.Array]) -> list[np.ndarray]:
    """The result of a norm, and its gradients for a cotangent that differs from row to row."""
    out_BC, backward = jax.vjp(partial(_norm, kind=kind), *arguments)
    cotangent_BC = jnp.cos(jnp.arange(out_BC.size, dtype=jnp.float32)).reshape(out_BC.shape)
    return [np.asarray(array, np.float64) for array in (out_BC, *backward(cotangent_BC.astype(out_BC.dtype)))]


def test_layer_norm_and_its_gradients_are_flax_s_in_float64() -> None:
    with jax.enable_x64(True):
        found, stock = (_and_slopes(kind, _norm_arguments("float64")) for kind in (LayerNorm, nnx.LayerNorm))
    for array, known in zip(found, stock, strict=True):
        np.testing.assert_allclose(array, known, rtol=1e-12, atol=1e-13)


def test_layer_norm_of_bfloat16_is_rounded_once() -> None:
    """Of float64's own result and gradients; sums over rows in bfloat16 would be off by a percent."""
    arguments = _norm_arguments("bfloat16")
    found = _and_slopes(LayerNorm, arguments)
    with jax.enable_x64(True):
        wide = [jnp.asarray(argument, "float64") for argument in arguments]
        out_BC, backward = jax.vjp(partial(_norm, kind=nnx.LayerNorm), *wide)
        cotangent_BC = jnp.cos(jnp.arange(out_BC.size, dtype=jnp.float32)).reshape(out_BC.shape)
        rounded_BC = cotangent_BC.astype(jnp.bfloat16).astype("float64")
        exact = [np.asarray(array) for array in (out_BC, *backward(rounded_BC))]
    for array, known in zip(found, exact, strict=True):
        np.testing.assert_allclose(array, known, rtol=2.0**-8, atol=1e-5)


def test_layer_norm_keeps_two_numbers_a_row() -> None:
    """Beside its argument and its scale; what XLA would keep or compute again otherwise is its own choice."""
    _, backward = jax.vjp(partial(_norm, kind=LayerNorm), *_norm_arguments("bfloat16"))
    kept = sorted((leaf.shape, leaf.dtype.name) for leaf in jax.tree.leaves(backward) if np.size(leaf) > 1)
    rows = ((6, 5, 1), "float32")
    assert kept == [rows, rows, ((6, 5, 24), "bfloat16"), ((24,), "bfloat16")]


def test_a_whole_cotangent_is_one_array_in_the_program() -> None:
    """Two products read the gradient of three parts; the concatenation stands behind a barrier for both."""

    def loss(x_BC: jax.Array, weights_CO: jax.Array) -> jax.Array:
        parts = jnp.split(whole_cotangent(x_BC @ weights_CO), 3, axis=-1)
        return sum((i + 2) * jnp.sin(part).sum() for i, part in enumerate(parts))

    x_BC, weights_CO = jnp.ones((4, 5)), jnp.linspace(0, 1, 30).reshape(5, 6)
    slopes = jax.jit(jax.grad(loss, argnums=(0, 1)))
    assert slopes.lower(x_BC, weights_CO).as_text().count("optimization_barrier") == 1
    whole_BO = np.repeat([2.0, 3.0, 4.0], 2) * np.cos(x_BC @ weights_CO)
    found = slopes(x_BC, weights_CO)
    np.testing.assert_allclose(found[0], whole_BO @ weights_CO.T, rtol=1e-5)
    np.testing.assert_allclose(found[1], x_BC.T @ whole_BO, rtol=1e-5)
