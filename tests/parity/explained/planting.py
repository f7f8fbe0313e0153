"""A finished run whose torch side is edited anew for every search; the JAX side's steps are made once."""

from dataclasses import replace
from pathlib import Path

from parity.explain.search import Found, Search
from parity.explain.settings import Setting, Told, as_it_was, held_out
from parity.explain.worker import Worker
from spec.edits import parse


class Planting:
    """One run of two equal sides.

    Args:
      run: its folder.
      out: for the passes.
    """

    def __init__(self, run: Path, out: Path) -> None:
        self._told, self._out = Told.read(run), out
        self._torch = Worker("torch", out / "torch.log", 100)
        self._specs = {"seen": as_it_was(self._told), "held_out": held_out(self._told, out / "held_out")}
        self._found: dict[tuple[str, ...], Found] = {}
        jax = Worker("jax", out / "jax.log", 200)
        try:
            for setting in self._settings(self._told):
                for job in setting.prepare():
                    jax.do(job)
        finally:
            jax.close()

    def search(self, *planted: str) -> Found:
        """What a search finds where these edits are planted on the torch side."""
        if planted not in self._found:
            own = {"torch": tuple(parse(text) for text in planted), "jax": ()}
            settings = self._settings(replace(self._told, edits=own))
            self._found[planted] = Search(*settings, say=lambda text: None).run()
        return self._found[planted]

    def search_in(self, torch_side: Path) -> tuple[Found, Setting]:
        """What it finds where the torch side is another file, and the setting that it was found in."""
        seen, held = self._settings(self._told)
        for setting in (seen, held):
            assert setting.spec.pair is not None
            setting.spec = replace(setting.spec, pair=replace(setting.spec.pair, torch=str(torch_side)))
        return Search(seen, held, say=lambda text: None).run(), seen

    def close(self) -> None:
        """Ends the torch process."""
        self._torch.close()

    def _settings(self, told: Told) -> list[Setting]:
        return [
            Setting(name, told, spec, self._out / name, self._torch) for name, spec in self._specs.items()
        ]
