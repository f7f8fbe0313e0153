"""What is saved comes back bit for bit, and the checksum tells when it did not."""

import pytest
import torch

from torch_impl.graph.neutral import SavedState, checksum

CPU = torch.device("cpu")


def state() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [
        torch.randn(1000),
        torch.randn(3, 5, dtype=torch.float64).t(),
        torch.tensor(7),
        torch.randn(7).to(torch.bfloat16),
        torch.tensor([True, False, True]),
        torch.tensor([float("nan"), -0.0]),
        torch.zeros(0),
    ]


def test_everything_comes_back_and_the_checksum_agrees() -> None:
    tensors = state()
    saved = SavedState(tensors, CPU)
    copies = [tensor.clone() for tensor in tensors]
    torch.manual_seed(5)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    saved = SavedState(tensors, CPU)
    torch.rand(100)
    for tensor in tensors:
        tensor.fill_(1)
    assert checksum(tensors) != saved.checksum
    assert saved.put_back() == saved.checksum
    assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(tensors, copies, strict=True))
    assert torch.equal(torch.rand(3), drawn)


@pytest.mark.parametrize("which", range(6))
def test_one_bit_anywhere_moves_the_checksum(which: int) -> None:
    tensors = state()
    before = checksum(tensors)
    tensor = tensors[which]
    raw = tensor.clone().contiguous().view(-1).view(torch.uint8)
    raw[-1] ^= 1
    tensor.copy_(raw.view(tensor.dtype).view(tensor.shape))
    assert checksum(tensors) != before


def test_order_counts_within_a_tensor_and_between() -> None:
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    assert checksum([a]) != checksum([b]) and checksum([a, b]) != checksum([b, a])
    assert checksum([torch.zeros(4)]) != checksum([torch.zeros(5)])


def test_long_tensors_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.randn(1000)
    whole = checksum([tensor])
    monkeypatch.setattr("torch_impl.graph.neutral.CHUNK_WORDS", 7)
    assert checksum([tensor]) == whole
