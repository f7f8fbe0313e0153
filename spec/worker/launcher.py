"""What a launcher told this process in its environment, such as how many processes there are.

Must not: join them.
"""

import os

from spec.errors import RuleError


def number(variable: str, default: int, least: int = 0) -> int:
    """The whole number that an environment variable holds; the default where it is not set.

    Raises:
      RuleError: it holds something else.
    """
    text = os.environ.get(variable)
    if text is None:
        return default
    # isdecimal() lets digits of every script pass, as int() does.
    if not text.strip().isdecimal() or int(text) < least:
        raise RuleError(
            f"{variable} is a whole number, {least} at least.",
            repr(text),
            f"unset {variable} for one process; a launcher of several sets it",
        )
    return int(text)
