"""What a parser complains about, for tests that feed it anything at all."""

from collections.abc import Callable

from quantumqtt.config import split_error
from quantumqtt.errors import ConfigError


def complaints(parse: Callable[[], object]) -> list[tuple[str, str | None]]:
    """Parse; gives every problem with its remedy, nothing when it was understood."""
    try:
        parse()
    except ConfigError as error:
        return list(split_error(error))
    return []
