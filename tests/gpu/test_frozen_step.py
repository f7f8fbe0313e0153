"""A capture that reads Adam's step counter on the host freezes it: the capture behind case P26."""

import pytest
import torch

from spec.errors import RuleError
from spec.run import Execution, OwnOptimizer
from tests.jax_impl.small import mlp_problem

pytestmark = pytest.mark.gpu


def _replays(capturable: bool) -> list[torch.Tensor]:
    """Ten updates of one parameter by the same gradients, the step captured once and replayed."""
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, 64, device="cuda"))
    grads = torch.randn(10, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    parameter.grad = grads[0].clone()
    optimizer = torch.optim.Adam([parameter], lr=1e-3, capturable=capturable)
    # State is made outside of the capture, and then as it was at first.
    optimizer.step()
    with torch.no_grad():
        parameter.copy_(torch.linspace(-1, 1, 64, device="cuda"))
        for value in optimizer.state[parameter].values():
            value.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    found = []
    for grad in grads:
        parameter.grad.copy_(grad)
        graph.replay()
        found.append(parameter.detach().clone())
    return found


# The capture that the refusal leaves is empty.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_torch_refuses_what_would_freeze() -> None:
    with pytest.raises(RuntimeError, match="capturable"):
        _replays(capturable=False)


def test_replays_of_a_capturable_step_equal_eager_ones() -> None:
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, 64, device="cuda"))
    grads = torch.randn(10, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    optimizer = torch.optim.Adam([parameter], lr=1e-3, capturable=True)
    for grad, replayed in zip(grads, _replays(capturable=True), strict=True):
        parameter.grad = grad.clone()
        optimizer.step()
        torch.testing.assert_close(replayed, parameter.detach(), rtol=1e-6, atol=1e-7)


def test_an_optimizer_of_ones_own_is_not_captured_unseen() -> None:
    import torch_impl
    from spec.edits import constants
    from torch_impl.models import preset_side

    problem = mlp_problem(optimizer=OwnOptimizer(max_norm=0.5))
    preset = preset_side(problem, constants(problem))
    side = torch_impl.Side(preset.build, preset.loss, lambda named: torch.optim.Adam(named, lr=1e-3))
    with pytest.raises(RuleError, match="runs eagerly"):
        torch_impl.Trainer(problem, Execution(device="cuda"), "graph", side=side)
