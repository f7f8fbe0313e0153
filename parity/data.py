"""`parity data prepare`: a text becomes a token shard."""

from parity.options import Prepare
from spec.data import prepare as shards
from spec.errors import ExitCode


def prepare(options: Prepare) -> ExitCode:
    """Writes the shard and says how long it is.

    Raises:
      RuleError: the text is missing or empty, or the shard exists.
    """
    tokens = shards.prepare(options.text, options.out)
    print(f"{options.out}: {tokens} tokens")
    return ExitCode.SAME
