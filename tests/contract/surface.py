"""The public surface of a folder of Python files, read with `ast`, and how two surfaces differ.

It never imports what it reads. `test_mirror.py` uses it on torch_impl/ and jax_impl/.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ABSENT = "absent"
ANYTHING = "..."
HEADER = ["file", "name", "torch", "jax", "reason"]

Surface = dict[str, dict[str, str]]
"""file -> dotted public name -> what it is: `(a, b)` for a function, `class(a, b)`, `property` or `value`."""


@dataclass(frozen=True)
class Difference:
    """One name that is not the same on both sides; name `-` stands for a whole file."""

    file: str
    name: str
    torch: str
    jax: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name}\n    torch  {self.torch}\n    jax    {self.jax}"


@dataclass(frozen=True)
class Row:
    """One row of the table of differences. `file` and `name` may be shell patterns, a cell may be `...`."""

    file: str
    name: str
    torch: str
    jax: str
    reason: str

    @property
    def renamed_from(self) -> str | None:
        """The jax name of a cell `as NAME`: the same thing under another name."""
        return self.jax.removeprefix("as ") if self.jax.startswith("as ") else None

    def allows(self, difference: Difference) -> bool:
        """Whether this row names the difference and states what each side really has."""
        return (
            fnmatchcase(difference.file, self.file)
            and fnmatchcase(difference.name, self.name)
            and self.torch in (ANYTHING, difference.torch)
            and self.jax in (ANYTHING, difference.jax)
        )


def read_table(markdown: str) -> list[Row]:
    """Rows of the one table whose header is `file | name | torch | jax | reason`."""
    lines = [_cells(line) for line in markdown.splitlines()]
    starts = [i for i, cells in enumerate(lines) if cells == HEADER]
    assert len(starts) == 1, f"expected one table with the columns {HEADER}, found {len(starts)}"
    rows = []
    for cells in lines[starts[0] + 2 :]:
        if not cells:
            break
        assert len(cells) == len(HEADER), f"a row needs {len(HEADER)} cells, this has {len(cells)}: {cells}"
        rows.append(Row(*cells))
    return rows


def _cells(line: str) -> list[str]:
    if not line.strip().startswith("|"):
        return []
    return [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]


def read_surface(folder: Path, exempt: tuple[str, ...] = ()) -> Surface:
    """Public names of every file below `folder`, folders named in `exempt` left out."""
    files = (path.relative_to(folder) for path in sorted(folder.rglob("*.py")))
    return {
        file.as_posix(): dict(_public(ast.parse((folder / file).read_text("ascii"))))
        for file in files
        if not set(file.parts[:-1]) & set(exempt)
    }


def differences(torch: Surface, jax: Surface, rows: list[Row]) -> tuple[list[Difference], list[str]]:
    """What no row explains, and the rows that explain nothing.

    Renames are applied to the jax surface first, so that a renamed function's parameters are compared too.
    """
    used: set[Row] = set()
    jax = {file: _rename(file, names, rows, used) for file, names in jax.items()}
    unexplained = []
    for difference in _compare(torch, jax):
        matching = [row for row in rows if row.renamed_from is None and row.allows(difference)]
        used.update(matching)
        if not matching:
            unexplained.append(difference)
    stale = [f"{row.file}: {row.name} ({row.reason})" for row in rows if row not in used]
    return unexplained, stale


def _rename(file: str, names: dict[str, str], rows: list[Row], used: set[Row]) -> dict[str, str]:
    renamed = {}
    for name, shape in names.items():
        parent, dot, leaf = name.rpartition(".")
        new_name = name
        for row in rows:
            target = parent + dot + row.name.rpartition(".")[2]
            if leaf == row.renamed_from and fnmatchcase(file, row.file) and fnmatchcase(target, row.name):
                used.add(row)
                new_name = target
        renamed[new_name] = shape
    return renamed


def _compare(torch: Surface, jax: Surface) -> Iterator[Difference]:
    for file in sorted(torch.keys() | jax.keys()):
        if file not in torch or file not in jax:
            present = {True: "present", False: ABSENT}
            yield Difference(file, "-", present[file in torch], present[file in jax])
            continue
        one, other = torch[file], jax[file]
        for name in sorted(one.keys() | other.keys()):
            parent = name.rpartition(".")[0]
            if parent and (parent not in one or parent not in other):
                continue  # the class itself is missing on one side: said once
            left, right = one.get(name, ABSENT), other.get(name, ABSENT)
            if left != right:
                yield Difference(file, name, left, right)


def _public(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if _is_public(node.name):
                yield node.name, _parameters(node.args)
            case ast.ClassDef() if _is_public(node.name):
                yield node.name, _constructor(node)
                yield from _methods(node)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name) and _is_public(target.id):
                        yield target.id, "value"
            case _:
                pass


def _methods(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and (_is_public(item.name) or item.name == "__call__"):
            decorators = {ast.unparse(decorator) for decorator in item.decorator_list}
            is_property = decorators & {"property", "cached_property", "functools.cached_property"}
            skip = 0 if "staticmethod" in decorators else 1
            yield f"{node.name}.{item.name}", "property" if is_property else _parameters(item.args, skip)


def _constructor(node: ast.ClassDef) -> str:
    """`class(a, b)` from `__init__`, or from the fields of a dataclass or NamedTuple."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return "class" + _parameters(item.args, skip=1)
    makers = [ast.unparse(item) for item in (*node.decorator_list, *node.bases)]
    if any("dataclass" in maker or maker.endswith("NamedTuple") for maker in makers):
        fields = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
        return "class(" + ", ".join(ast.unparse(field) for field in fields) + ")"
    return "class"


def _parameters(args: ast.arguments, skip: int = 0) -> str:
    """Names and order, `*` and `**` kept; annotations and defaults are each side's own."""
    names = [arg.arg for arg in (*args.posonlyargs, *args.args)][skip:]
    if args.vararg or args.kwonlyargs:
        names.append("*" + (args.vararg.arg if args.vararg else ""))
    names += [arg.arg for arg in args.kwonlyargs]
    names += ["**" + args.kwarg.arg] if args.kwarg else []
    return "(" + ", ".join(names) + ")"


def _is_public(name: str) -> bool:
    return not name.startswith("_")
