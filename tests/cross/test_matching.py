"""Tensors of two real models find each other, and the gradients decide where shapes and names do not."""

import pytest

from spec.errors import RuleError
from tests.cross.matching import link_of, linked, match, write_sides

SQUARE_TORCH = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6, bias=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))

def build():
    return Model()
"""
SQUARE_JAX = """
class Model(nnx.Module):
    def __init__(self):
        self.first = nnx.Linear(6, 6, rngs=nnx.Rngs(0))
        self.second = nnx.Linear(6, 6, use_bias=False, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.second(jnp.tanh(self.first(x)))

def build():
    return Model()
"""


def test_the_layout_of_square_matrices_is_settled_by_gradients(tmp_path) -> None:
    """The second matrix lies as torch's does, which no shape tells: it is multiplied from the other side."""
    jax_code = """
    class Model(nnx.Module):
        def __init__(self):
            self.first = nnx.Linear(6, 6, rngs=nnx.Rngs(0))
            self.second = nnx.Param(jnp.ones((6, 6)))

        def __call__(self, x):
            return jnp.tanh(self.first(x)) @ self.second[...].T

    def build():
        return Model()
    """
    found = match(tmp_path, write_sides(tmp_path, SQUARE_TORCH, jax_code), (4, 6), (4, 6))
    assert found.proven and found.gradient_apart < 1e-5
    assert link_of(found, "first.weight").axes == (1, 0)
    assert link_of(found, "second.weight").axes in ((), (0, 1))


def test_a_square_matrix_that_lies_unusually_is_turned_after_trying(tmp_path) -> None:
    jax_code = """
    class Model(nnx.Module):
        def __init__(self):
            self.first = nnx.Linear(6, 6, rngs=nnx.Rngs(0))
            self.second = nnx.Param(jnp.ones((6, 6)))

        def __call__(self, x):
            return jnp.tanh(self.first(x)) @ self.second[...]

    def build():
        return Model()
    """
    found = match(tmp_path, write_sides(tmp_path, SQUARE_TORCH, jax_code), (4, 6), (4, 6))
    assert found.proven and found.tried > 1
    assert any("second" in choice for choice in found.settled)
    assert link_of(found, "second.weight").axes == (1, 0)


@pytest.mark.slow  # Compiles a probe for many candidates.
def test_square_convolution_kernels_in_torchs_order_are_found(tmp_path) -> None:
    torch_code = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x):
            return torch.tanh(self.conv(x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1)

    def build():
        return Model()
    """
    jax_code = """
    class Model(nnx.Module):
        def __init__(self):
            self.kernel = nnx.Param(jnp.ones((3, 3, 3, 3)))
            self.bias = nnx.Param(jnp.zeros(3))

        def __call__(self, x):
            dims = ("NHWC", "OIHW", "NHWC")
            out = jax.lax.conv_general_dilated(
                x, self.kernel[...], (1, 1), "SAME", dimension_numbers=dims
            )
            return jnp.tanh(out + self.bias[...])

    def build():
        return Model()
    """
    found = match(tmp_path, write_sides(tmp_path, torch_code, jax_code), (2, 5, 5, 3), (2, 5, 5, 3))
    assert found.proven, found
    assert link_of(found, "conv.weight").axes == (0, 1, 2, 3)
    assert found.settled


@pytest.mark.slow  # Compiles a probe for many candidates.
def test_names_that_mislead_are_overruled_by_gradients(tmp_path) -> None:
    """Three matrices of one shape, named alike, used in another order."""
    torch_code = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(5, 5, bias=False)
            self.b = nn.Linear(5, 5, bias=False)
            self.c = nn.Linear(5, 5, bias=False)

        def forward(self, x):
            return self.c(torch.tanh(self.b(torch.sin(self.a(x)))))

    def build():
        return Model()
    """
    jax_code = """
    class Model(nnx.Module):
        def __init__(self):
            self.u, self.v, self.w = (nnx.Linear(5, 5, use_bias=False, rngs=nnx.Rngs(i)) for i in range(3))

        def __call__(self, x):
            return self.v(jnp.tanh(self.u(jnp.sin(self.w(x)))))

    def build():
        return Model()
    """
    found = match(tmp_path, write_sides(tmp_path, torch_code, jax_code), (4, 5), (4, 5))
    assert found.proven
    assert linked(found) == {"a.weight": "w.kernel", "b.weight": "u.kernel", "c.weight": "v.kernel"}


def test_scanned_layers_are_cut_into_layers(tmp_path) -> None:
    torch_code = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
            self.head = nn.Linear(6, 2)

        def forward(self, x):
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return self.head(x)

    def build():
        return Model()
    """
    jax_code = """
    class Layer(linen.Module):
        @linen.compact
        def __call__(self, x, _):
            return jnp.tanh(linen.Dense(6)(x)), None

    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            scan = linen.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
            x, _ = scan(name="layers")(x, None)
            return linen.Dense(2, name="head")(x)

    def build():
        return Model()
    """
    found = match(tmp_path, write_sides(tmp_path, torch_code, jax_code), (4, 6), (4, 2))
    assert found.proven, found
    assert not found.unmatched_torch and not found.unmatched_jax
    layers = [link for link in found.links if link.torch == "layers.2.weight"]
    assert layers[0].jax_part is not None and layers[0].jax_part.start == 2


@pytest.mark.slow  # Compiles a probe for many candidates.
def test_transposed_convolutions_are_reversed(tmp_path) -> None:
    torch_code = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.ConvTranspose2d(2, 4, 3, stride=2)

        def forward(self, x):
            return torch.tanh(self.up(x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1)

    def build():
        return Model()
    """
    jax_code = """
    class Model(nnx.Module):
        def __init__(self):
            self.up = nnx.ConvTranspose(2, 4, (3, 3), strides=(2, 2), padding="VALID", rngs=nnx.Rngs(0))

        def __call__(self, x):
            return jnp.tanh(self.up(x))

    def build():
        return Model()
    """
    found = match(tmp_path, write_sides(tmp_path, torch_code, jax_code), (2, 4, 4, 2), (2, 9, 9, 4))
    assert found.proven, found
    assert link_of(found, "up.weight").flip == (2, 3)


def test_what_has_no_counterpart_is_listed(tmp_path) -> None:
    jax_code = SQUARE_JAX.replace("use_bias=False, ", "")
    found = match(tmp_path, write_sides(tmp_path, SQUARE_TORCH, jax_code), (4, 6), (4, 6))
    assert (found.unmatched_torch, found.unmatched_jax) == ((), ("second.bias [6]",))
    assert not found.proven and found.tried == 0


@pytest.mark.slow  # Compiles a probe for many candidates.
def test_a_planted_mistake_does_not_bend_the_map(tmp_path) -> None:
    """No candidate makes the gradients agree: the likeliest is kept, and said not to be proven."""
    jax_code = SQUARE_JAX.replace("jnp.tanh", "jax.nn.relu")
    found = match(tmp_path, write_sides(tmp_path, SQUARE_TORCH, jax_code), (4, 6), (4, 6))
    assert not found.proven and found.gradient_apart > 0.01
    assert linked(found)["first.weight"] == "first.kernel"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def build():\n    return Model()\n", "NameError"),
        ("def build():\n    return 3\n", "build() returned int"),
        ("def biuld():\n    return nn.Linear(6, 6)\n", "no build(); it has biuld"),
        ("import no_such_package\n", "No module named"),
        ("def build():\n    return nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.1))\n", "p=0"),
        ("def build():\n    return nn.Linear(7, 6)\n", "shapes cannot be multiplied"),
    ],
)
def test_mistakes_of_a_file_are_told_with_its_line(tmp_path, code, message) -> None:
    files = write_sides(tmp_path, code, "def build():\n    return nnx.Linear(6, 6, rngs=nnx.Rngs(0))\n")
    with pytest.raises(RuleError) as caught:
        match(tmp_path, files, (4, 6), (4, 6))
    assert message in caught.value.numbers + caught.value.mend
    assert str(tmp_path / "torch_side.py") in caught.value.numbers


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("model(batch['x']).sum()", "loss returned a single array, torch.float"),
        ("(model(batch['x']), 1)", "as the sum"),
        ("(3, 1)", "int as the sum"),
    ],
)
def test_a_loss_that_is_no_sum_and_count_is_refused(tmp_path, result, message) -> None:
    loss = f"\ndef loss(model, batch):\n    return {result}\n"
    files = write_sides(tmp_path, "def build():\n    return nn.Linear(6, 6)\n", "", loss)
    with pytest.raises(RuleError) as caught:
        match(tmp_path, files, (4, 6), (4, 6))
    assert message in caught.value.numbers


@pytest.mark.slow  # Compiles a probe for many candidates.
def test_running_statistics_of_linen_are_state_too(tmp_path) -> None:
    """flax keeps the biased variance, torch the unbiased one: linked all the same, for the judge to see."""
    torch_code = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(6)
            self.head = nn.Linear(6, 2)

        def forward(self, x):
            return self.head(torch.tanh(self.norm(x)))

    def build():
        return Model()
    """
    jax_code = """
    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            norm = linen.BatchNorm(False, momentum=0.9, epsilon=1e-5, use_fast_variance=False)
            return linen.Dense(2, name="head")(jnp.tanh(norm(x)))


    def build():
        return Model()
    """
    loss = """
def loss(model, batch):
    options = {"mutable": ["batch_stats"]} if "jax" in globals() else {}
    out = model(batch["x"], **options)
    return (out * out * batch["w"]).sum(), len(out)
"""
    found = match(tmp_path, write_sides(tmp_path, torch_code, jax_code, loss), (8, 6), (8, 2))
    assert found.proven, found
    paths = linked(found)
    assert paths["norm.running_mean"].endswith("mean") and paths["norm.running_var"].endswith("var")


def test_a_loss_that_is_not_finite_is_told_and_ends_the_search(tmp_path) -> None:
    jax_code = SQUARE_JAX.replace("(self.first(x)))", "(self.first(x))) * jnp.nan")
    torch_code = SQUARE_TORCH.replace("(self.first(x)))", '(self.first(x))) * float("nan")')
    found = match(tmp_path, write_sides(tmp_path, torch_code, jax_code), (4, 6), (4, 6))
    assert (found.tried, found.proven, found.untried) == (1, False, 0)
    assert found.not_finite == ("the loss in torch", "the loss in jax")


@pytest.mark.slow  # Compiles a probe for many candidates.
def test_gates_named_by_two_words_are_those_named_by_one(tmp_path) -> None:
    torch_code = """
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = nn.ModuleDict({k: nn.Linear(3, 8) for k in "rzn"})
            self.r = nn.ModuleDict({k: nn.Linear(8, 8, bias=k == "n") for k in "rzn"})

        def forward(self, x):
            s = x.new_zeros(len(x), 8)
            for y in x.unbind(1):
                r = torch.sigmoid(self.i["r"](y) + self.r["r"](s))
                z = torch.sigmoid(self.i["z"](y) + self.r["z"](s))
                s = (1 - z) * torch.tanh(self.i["n"](y) + r * self.r["n"](s)) + z * s
            return s

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = Cell()

        def forward(self, x):
            return self.cell(x)

    def build():
        return Model()
    """
    jax_code = """
    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.RNN(linen.GRUCell(8), name="cell")(x)[:, -1]

    def build():
        return Model()
    """
    found = match(tmp_path, write_sides(tmp_path, torch_code, jax_code), (8, 6, 3), (8, 8))
    assert found.proven and found.tried < 200 and found.untried == 0
    partners = {one.torch: found.paths[one.jax].rpartition("GRUCell_0.")[2] for one in found.links}
    assert partners["cell.r.n.bias"] == "hn.bias" and partners["cell.i.r.bias"] == "ir.bias"
