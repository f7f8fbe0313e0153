"""Reading compiled programs, on text as XLA writes it: aliases, collectives, loops and what they call."""

import jax
import jax.numpy as jnp
from jax import lax

from jax_impl.xla import compilations, hlo

PROGRAM = """\
HloModule jit_step, input_output_alias={ {0}: (0, {}, may-alias), {1}: (2, {}, must-alias) }, num_partitions=2

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%inner (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %r = f32[8]{0} all-reduce(%p), channel_id=1, to_apply=%add
}

%body (carry: (s32[], f32[8])) -> (s32[], f32[8]) {
  %carry = (s32[], f32[8]{0}) parameter(0)
  %called = f32[8]{0} call(%item), to_apply=%inner
  ROOT %out = (s32[], f32[8]{0}) tuple(%i, %called)
}

%condition (carry: (s32[], f32[8])) -> pred[] {
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (a: f32[8], b: f32[2,3], c: f32[]) -> (f32[8], f32[]) {
  %loop = (s32[], f32[8]{0}) while(%start), condition=%condition, body=%body, backend_config={"n":"2"}
  %pair = (f32[2,3]{1,0}, f32[]) all-reduce-start(%b, %c), channel_id=2, to_apply=%add
  %done = (f32[2,3]{1,0}, f32[]) all-reduce-done(%pair)
  %whole = f32[16]{0} all-gather(%a), dimensions={0}
  %early = (f32[8]{0}, f32[8]{0}) all-reduce-start(%a), channel_id=3, to_apply=%add
  %late = f32[8]{0} all-reduce-done(%early)
}
"""


def test_aliases_are_read_by_parameter() -> None:
    assert hlo.aliased_parameters(PROGRAM) == {0, 2}
    assert (
        hlo.aliased_parameters(PROGRAM.replace("input_output_alias", "nothing").replace("alias)", ")"))
        == set()
    )


def test_collectives_are_read_with_their_place() -> None:
    assert hlo.collectives(PROGRAM) == [
        hlo.Collective("all-reduce", 8, loops=1),
        hlo.Collective("all-reduce", 7, loops=0),
        hlo.Collective("all-gather", 16, loops=0),
        hlo.Collective("all-reduce", 8, loops=0),
    ]


def test_a_program_is_the_same_wherever_it_is_called_from() -> None:
    def compiled() -> str:
        text = jax.jit(lambda x: jnp.tanh(x @ x).sum()).lower(jnp.ones((8, 8))).compile().as_text()
        assert text is not None
        return text

    one, other = (
        compiled(),
        # On a line of its own: this is what differs.
        compiled(),
    )
    assert one != other
    bare = hlo.without_places(one)
    assert bare == hlo.without_places(other)
    assert "metadata" not in bare and "StackFrames" not in bare and "tanh(" in bare
    assert hlo.without_places(PROGRAM) == PROGRAM


def test_the_text_is_still_written_so() -> None:
    """What this version of XLA really prints for a loop and for donated arguments."""

    def add_twice(total, unused, values):
        return lax.fori_loop(0, values[0].astype(int), lambda _, t: t + values, total), unused + 1

    arguments = jnp.ones(4), jnp.ones(()), jnp.ones(4)
    program = jax.jit(add_twice, donate_argnums=(0, 1), keep_unused=True).lower(*arguments).compile()
    text = program.as_text()
    assert " while(" in text
    assert hlo.aliased_parameters(text) == {0, 1}
    assert hlo.collectives(text) == []


def test_compilations_are_counted_by_name() -> None:
    def one_of_a_kind(x):
        return x + 1

    jitted = jax.jit(one_of_a_kind)
    for array in (jnp.ones(2), jnp.ones(2), jnp.ones(3)):
        jitted(array)
    assert compilations.count("one_of_a_kind") == 2
    assert compilations.count("never_seen") == 0
