"""torch_impl/ and jax_impl/ are mirrored: same files, same public names, same parameters in the same order.

What must differ stands in the table of spec/README.md with its reason, and nowhere else.
"""

from pathlib import Path

import pytest

from tests.contract.surface import Row, differences, read_surface, read_table

ROOT = Path(__file__).resolve().parents[2]
EXEMPT = ("graph", "xla")
"""Each framework's own machinery (CUDA graph capture, the XLA ledger): the other side has no such thing."""


def test_sides_are_mirrored_but_for_the_table() -> None:
    rows = read_table((ROOT / "spec" / "README.md").read_text("ascii"))
    torch = read_surface(ROOT / "torch_impl", EXEMPT)
    jax = read_surface(ROOT / "jax_impl", EXEMPT)
    unexplained, stale = differences(torch, jax, rows)
    assert not unexplained, (
        "torch_impl/ and jax_impl/ differ here; make them the same, or add a row with the reason to "
        "spec/README.md:\n" + "\n".join(map(str, unexplained))
    )
    assert not stale, "these rows of spec/README.md no longer match a difference; remove them:\n" + "\n".join(
        stale
    )


def test_every_row_has_a_reason_and_names_something() -> None:
    for row in read_table((ROOT / "spec" / "README.md").read_text("ascii")):
        assert len(row.reason.split()) >= 3, f"{row.file}: {row.name} needs a reason"
        assert row.name.strip("*"), f"{row.file}: a pattern for every name would excuse a whole file"
        assert row.file.strip("*/"), f"{row.name}: a pattern for every file would excuse a whole side"


# The rest proves that the comparison above can fail.

CLEAN = """
import dataclasses

LIMIT = 3
_private = 4

def clip(grads, max_norm, *, eps=0.0):
    pass

def _helper(x):
    pass

@dataclasses.dataclass
class State:
    params: dict
    step: int

    def digest(self, name):
        pass

    @property
    def size(self):
        pass

class Model(Base):
    def __init__(self, sizes):
        pass

    def forward(self, tokens_BT):
        pass
"""

CHANGES = {
    "a name that one side lacks": ("LIMIT = 3", ""),
    "another name": ("def clip(", "def clip_norm("),
    "another parameter": ("grads, max_norm", "grads, norm"),
    "another order": ("grads, max_norm", "max_norm, grads"),
    "keyword-only against positional": ("max_norm, *, eps", "max_norm, eps"),
    "another field": ("step: int", "num_steps: int"),
    "another method parameter": ("digest(self, name)", "digest(self, key)"),
    "a method against a property": ("@property", ""),
    "another constructor": ("__init__(self, sizes)", "__init__(self, config)"),
    "another parameter in a renamed method": ("forward(self, tokens_BT)", "__call__(self, x_BT)"),
}

RENAME = Row("*.py", "*.forward", "...", "as __call__", "flax modules are called, not forwarded")


def _surfaces(tmp_path: Path, torch_text: str, jax_text: str) -> tuple[dict, dict]:
    for side, text in (("torch", torch_text), ("jax", jax_text)):
        (tmp_path / side / "graph").mkdir(parents=True)
        (tmp_path / side / "step.py").write_text(text)
        (tmp_path / side / "graph" / f"{side}_only.py").write_text("")
    return read_surface(tmp_path / "torch", EXEMPT), read_surface(tmp_path / "jax", EXEMPT)


def test_same_files_do_not_differ(tmp_path: Path) -> None:
    renamed = (
        CLEAN.replace("forward", "__call__")
        .replace("_helper", "_other")
        .replace("params: dict", "params: object")
    )
    assert differences(*_surfaces(tmp_path, CLEAN, renamed), [RENAME]) == ([], [])


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_seen_once(tmp_path: Path, change: str) -> None:
    old, new = CHANGES[change]
    assert old in CLEAN
    rows = [RENAME] if "__call__" in new else []
    unexplained, stale = differences(*_surfaces(tmp_path, CLEAN, CLEAN.replace(old, new)), rows)
    assert stale == []
    assert len({difference.file for difference in unexplained}) == 1
    assert len(unexplained) == (2 if change == "another name" else 1)


def test_a_missing_file_is_one_difference(tmp_path: Path) -> None:
    torch, jax = _surfaces(tmp_path, CLEAN, CLEAN)
    unexplained, _ = differences(torch, {}, [])
    assert [(d.file, d.name, d.torch, d.jax) for d in unexplained] == [("step.py", "-", "present", "absent")]
    row = Row("step.py", "-", "present", "absent", "a reason of three words")
    assert differences(torch, {}, [row]) == ([], [])
    assert len(differences(torch, jax, [row])[1]) == 1


def test_a_row_must_state_what_is_really_there(tmp_path: Path) -> None:
    torch, jax = _surfaces(tmp_path, CLEAN, CLEAN.replace("grads, max_norm", "max_norm, grads"))
    true_row = Row("step.py", "clip", "(grads, max_norm, *, eps)", "(max_norm, grads, *, eps)", "r")
    false_row = Row("step.py", "clip", "(grads, max_norm, *, eps)", "(grads)", "r")
    assert differences(torch, jax, [true_row]) == ([], [])
    unexplained, stale = differences(torch, jax, [false_row])
    assert len(unexplained) == len(stale) == 1


def test_table_is_read_from_markdown() -> None:
    header = "| file | name | torch | jax | reason |\n|---|---|---|---|---|\n"
    text = f"words\n\n{header}| `a.py` | `f` | `(x)` | ... | why |\n\nend\n"
    assert read_table(text) == [Row("a.py", "f", "(x)", "...", "why")]
    with pytest.raises(AssertionError, match="cells"):
        read_table(text.replace("| why |", "|"))
    with pytest.raises(AssertionError, match="one table"):
        read_table("no table")
