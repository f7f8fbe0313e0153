"""GELU and cross-entropy, their derivatives written out or computed twice, against formulas in float64."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jax_impl.layers import gelu
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
