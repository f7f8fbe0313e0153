"""A parameter that the other side holds as a buffer is told so."""

from spec.description import Described, Description
from spec.pairs.match import trained_alone


def tensor(path: str, *shape: int, changes: bool = False) -> Described:
    return Described(name=path, path=path, shape=shape, dtype="float32", owner="Model", changes=changes)


def test_a_buffer_of_that_shape_is_named_and_running_statistics_are_not() -> None:
    torch = Description(
        side="torch",
        parameters=(),
        buffers=(tensor("norm.running_mean", 4, changes=True), tensor("scale", 4), tensor("head.bias", 4)),
        ties=(),
        loss_sum=1.0,
        loss_dtype="float64",
        count=1.0,
        precision="f64",
    )
    (said,) = trained_alone([tensor("out.bias", 4), tensor("other", 5)], "jax", torch)
    assert said.startswith("out.bias is trainable only in jax: in torch it is the buffer head.bias")
    assert "stop_gradient" in said
