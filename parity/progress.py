"""What is going on, on standard error: one line when something begins or ends, a moving one on a terminal."""

from rich.console import Console
from rich.status import Status


class Progress:
    """Progress of one command. Off a terminal nothing moves and nothing is coloured.

    Args:
      quiet: say nothing at all.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=quiet)
        self._status: Status | None = None

    def say(self, text: str) -> None:
        """A line that stays."""
        self.rest()
        self._console.print(text, markup=False, soft_wrap=True)

    def move(self, text: str) -> None:
        """The state of now; shown on a terminal only."""
        if not self._console.is_terminal:
            return
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        self._status.update(text)

    def rest(self) -> None:
        """Takes the moving line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None
