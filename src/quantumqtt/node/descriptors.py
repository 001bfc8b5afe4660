"""File descriptors: how many there are, and how many connections they allow.

Every connection is one descriptor. The soft limit of a shell is often 1024 while the hard limit is
far above; a process may raise the one to the other without asking anybody, so we do.
"""

import logging
import resource
from typing import Final

from quantumqtt.errors import ConfigError

_log = logging.getLogger(__name__)

CONNECTIONS_MAX_DEFAULT: Final = 1_048_576
CONNECTIONS_USEFUL_MIN: Final = 16

# Standard streams, event loops, log files, the data lock, and what the embedding program has open.
DESCRIPTORS_RESERVED: Final = 64
# One epoll instance and one eventfd.
DESCRIPTORS_PER_SHARD: Final = 2


def raise_descriptor_limit() -> int:
    """Lift the soft limit to the hard one and return what is now allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            # Some containers refuse even this; the soft limit is then the truth.
            _log.warning("descriptor limit stays low", extra={"soft": soft, "why": str(error)})
            return soft
    return hard


def plan_connections(*, descriptors: int, wanted: int | None, listeners: int, shards: int) -> int:
    """Decide how many connections fit the descriptor limit.

    Raises:
        ConfigError: More were asked for than fit, or hardly any fit at all.
    """
    own = DESCRIPTORS_RESERVED + DESCRIPTORS_PER_SHARD * shards
    # Each shard may hold its own socket of each listener.
    own += listeners * shards
    # RLIM_INFINITY is -1 in Python.
    room = CONNECTIONS_MAX_DEFAULT if descriptors < 0 else descriptors - own
    if wanted is not None and (descriptors < 0 or wanted <= room):
        return wanted
    if wanted is not None or room < CONNECTIONS_USEFUL_MIN:
        needed = own + (wanted or CONNECTIONS_USEFUL_MIN)
        asked = f"limits.connections_max = {wanted}" if wanted is not None else "a broker"
        raise ConfigError(
            f"{asked} needs {needed} file descriptors; the limit is {descriptors}",
            hint=f"run `ulimit -n {needed}` first (systemd: LimitNOFILE={needed}), or lower"
            " limits.connections_max",
        )
    return min(CONNECTIONS_MAX_DEFAULT, room)
