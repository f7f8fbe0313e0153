"""A loss compiled in parts: each block of the model a program, and what comes after the model another.

One program for the whole loss hands over all gradients at the end of its backward, so nothing can be reduced
beside it. Cut at the blocks, gradients come layer by layer. The model stays as it is between calls. Must
not: be taken where bits are promised, since other programs round elsewhere.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]


def find_blocks(module: nn.Module) -> list[nn.Module]:
    """The members of the model's outermost lists of layers."""
    found: list[nn.Module] = []
    for child in module.children():
        if isinstance(child, nn.ModuleList) and len(child) > 1:
            found.extend(child)
        else:
            found.extend(find_blocks(child))
    return found


def by_blocks(loss: Loss, module: nn.Module, how: dict[str, Any]) -> Loss:
    """The same loss of this module, in parts.

    Args:
      loss: calls the module once and makes a loss of what it returns and the batch.
      how: arguments of `torch.compile`.
    """

    def run(block: nn.Module, *arguments: Any, **named: Any) -> Any:
        return block.forward(*arguments, **named)

    # One function that is handed the block: blocks of one kind are one program.
    compiled_run = torch.compile(run, **how)
    programs = [(block, partial(compiled_run, block)) for block in find_blocks(module)]

    def after(out: Any, batch: Any) -> tuple[Tensor, Tensor]:
        return loss(lambda *arguments, **named: out, batch)  # type: ignore[arg-type]

    compiled_after = torch.compile(after, **how)

    def in_parts(given: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        arguments, named = _arguments_of_the_model(loss, batch)
        with _installed(programs):
            out = given(*arguments, **named)
        return compiled_after(out, batch)

    return in_parts


@contextmanager
def _installed(programs: list[tuple[nn.Module, Callable[..., Any]]]) -> Generator[None]:
    """Blocks run as programs, as after `Module.compile`, and are themselves again afterwards."""
    before = [block._compiled_call_impl for block, _ in programs]
    for block, program in programs:
        block._compiled_call_impl = program  # type: ignore[assignment]
    try:
        yield
    finally:
        for (block, _), implementation in zip(programs, before, strict=True):
            block._compiled_call_impl = implementation


class _Asked(Exception):
    """Carries the arguments of a call that was only to be seen."""

    def __init__(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.arguments, self.named = arguments, named


def _arguments_of_the_model(loss: Loss, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the loss calls the model with."""

    def see(*arguments: Any, **named: Any) -> None:
        raise _Asked(arguments, named)

    try:
        loss(see, batch)  # type: ignore[arg-type]
    except _Asked as asked:
        return asked.arguments, asked.named
    raise AssertionError("the loss does not call the model")
