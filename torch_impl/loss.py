"""Losses as a sum and a count, so that the division by the tokens of the global batch happens once, later.

Computed in at least float32, whatever the dtype of what comes in. Must not: divide. Counterpart:
`jax_impl/loss.py`.

Legend: B rows, T positions, V vocabulary, N = B T, O output width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from spec.workloads.gpt import IGNORE_LABEL


def cross_entropy(logits_BTV: Tensor, labels_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of -log softmax at the labels, and how many labels are not IGNORE_LABEL (int64), both 0-dim."""
    logits_NV = _at_least_float32(logits_BTV).flatten(0, 1)
    labels_N = labels_BT.flatten().long()
    total = F.cross_entropy(logits_NV, labels_N, ignore_index=IGNORE_LABEL, reduction="sum")
    return total, (labels_N != IGNORE_LABEL).sum()


def squared_error(prediction_BO: Tensor, target_BO: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the squares of prediction - target, and the number of elements (int64), both 0-dim."""
    error_BO = _at_least_float32(prediction_BO) - target_BO
    count = torch.full((), target_BO.numel(), dtype=torch.int64, device=target_BO.device)
    return (error_BO * error_BO).sum(), count


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
