"""Rates that are set reach the device, and no other setting changes unseen."""

from typing import Any

import pytest
import torch
from torch import nn

from spec.errors import RuleError
from torch_impl.graph.settings import Settings

CPU = torch.device("cpu")


def captured(**settings: Any) -> tuple[torch.optim.Optimizer, Settings]:
    """As they are at the launches of a graph."""
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(2))], **settings)
    found = Settings(optimizer, CPU)
    found.make_capturable(every=False)
    found.record()
    return optimizer, found


def test_a_tensor_on_the_device_stays_the_users_own() -> None:
    rate = torch.tensor(0.1)
    optimizer, settings = captured(lr=rate)
    assert optimizer.param_groups[0]["lr"] is rate and settings.rates() == [rate]
    rate.fill_(0.2)
    settings.audit()
    optimizer.param_groups[0]["lr"] = 0.3
    settings.audit()
    assert optimizer.param_groups[0]["lr"] is rate and float(rate) == pytest.approx(0.3)


def test_what_is_written_into_a_tensor_on_the_host_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the device is a GPU; that a tensor is not on it is pretended."""
    host = torch.tensor(0.1)
    on_device = lambda self, value: isinstance(value, torch.Tensor) and value is not host  # noqa: E731
    monkeypatch.setattr(Settings, "_is_on_device", on_device)
    optimizer, settings = captured(lr=host)
    rate = optimizer.param_groups[0]["lr"]
    assert rate is not host and float(rate) == pytest.approx(0.1)
    host.fill_(0.2)
    settings.audit()
    assert float(rate) == pytest.approx(0.2)
    # A schedule writes where it finds the tensor of the group.
    rate.fill_(0.4)
    settings.audit()
    assert float(rate) == pytest.approx(0.4)
    optimizer.param_groups[0]["lr"] = 0.5
    host.fill_(0.7)
    settings.audit()
    assert optimizer.param_groups[0]["lr"] is rate and float(rate) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda o: o.param_groups[0].update(betas=(0.5, 0.9)), r"group 0 betas: \(0\.9, 0\.999\) -> \(0\.5"),
        (lambda o: o.param_groups[0].update(weight_decay=0.2), "group 0 weight_decay: 0 -> 0.2"),
        (lambda o: o.param_groups[0].update(lr=torch.tensor(0.1)), "group 0 lr: a tensor of 0.1"),
        (lambda o: o.add_param_group({"params": [nn.Parameter(torch.zeros(1))]}), "groups: 1 -> 2"),
        (lambda o: o.load_state_dict(o.state_dict()), "state: replaced"),
    ],
)
def test_another_setting_is_named(change: Any, told: str) -> None:
    optimizer, settings = captured(lr=0.1)
    settings.audit()
    change(optimizer)
    with pytest.raises(RuleError, match=told) as refused:
        settings.audit()
    assert "capturable=True" in refused.value.mend


def test_until_the_record_settings_may_change() -> None:
    optimizer, settings = captured(lr=0.1)
    other = torch.tensor(0.2)
    optimizer.param_groups[0].update(betas=(0.5, 0.9), lr=other)
    settings.record()
    settings.audit()
    assert settings.rates()[0] is other
