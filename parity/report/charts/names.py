"""Names of kernels as people say them: the function alone, out of a symbol or out of a C++ declaration.

Only the beginning of a symbol is read, which is where the name stands; what lies beyond is arguments.
"""

import re

_NESTED = re.compile(r"N?[rVK]*(?:St)?")
_LENGTH = re.compile(r"L?(\d+)")
_WRAPPED = re.compile(r"\bKernel2?<([\w:]+)")
_WRAPPERS = ("Kernel", "Kernel2")
"""CUTLASS launches every kernel through these; the kernel's own name is the first template argument."""


def short(name: str) -> str:
    """A name without return type, namespaces, template and arguments; as it is where that leaves nothing."""
    return (_of_symbol(name) if name.startswith("_Z") else _of_declaration(name)) or name


def _of_symbol(name: str) -> str:
    """As the Itanium C++ ABI writes names: each with its length before it, nested ones after an `N`."""
    words, at = _words(name, 2)
    if words and words[-1] in _WRAPPERS and name[at : at + 1] == "I":
        words = _words(name, at + 1)[0] or words
    return words[-1] if words else ""


def _words(name: str, at: int) -> tuple[list[str], int]:
    """Names one after the other, from a place on, and where they end."""
    nested = _NESTED.match(name, at)
    at = nested.end() if nested else at
    found = []
    while length := _LENGTH.match(name, at):
        begin, at = length.end(), length.end() + int(length[1])
        if at > len(name):
            return [], at
        found.append(name[begin:at])
    return found, at


def _of_declaration(name: str) -> str:
    wrapped = _WRAPPED.search(name)
    bare = wrapped[1] if wrapped else name.replace("(anonymous namespace)::", "")
    inner = ""
    while inner != bare:
        inner, bare = bare, re.sub(r"<[^<>]*>", "", bare)
    bare = re.split(r"[<(]", bare, maxsplit=1)[0].strip()
    return bare.rpartition("::")[2].removeprefix("void ")
