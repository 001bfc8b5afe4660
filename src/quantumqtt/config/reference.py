"""Writes `docs/reference/configuration.md` from the models.

Run `python -m quantumqtt.config.reference > docs/reference/configuration.md`; a test compares.
"""

import sys
from collections.abc import Iterable
from typing import Final

from quantumqtt.config.keys import Key, catalogue

_INTRODUCTION: Final = """\
# Configuration

Generated from `quantumqtt.config`; do not edit by hand.

A node needs no configuration. What it is told comes from four places, the strongest first:

1. flags of `quantumqtt serve`,
2. environment variables: `QUANTUMQTT_` and the key in capitals, `__` between a table and its key,
   commas between the entries of a list,
3. the TOML file named by `--config`,
4. the defaults below.

`quantumqtt check-config FILE` reads a file and reports every problem in it with line, key, value
and remedy. A problem stops the start with exit code 2. An unknown key is a problem.

```toml
listen = ["tcp://127.0.0.1:1883", "tcp://[::1]:1883"]
admin = "127.0.0.1:8080"

[log]
level = "info"

[limits]
connections_max = 10000
```
"""

_STORAGE: Final = """\
The log on disk; without meaning under durability `memory`. A packet must fit into an entry of the
log: `packet_bytes_max` ≤ 16 MiB + 128 KiB, and `segment_bytes` is at least four times
(`packet_bytes_max` + 256 KiB).
"""

_LIMITS: Final = """\
Every bound has a name. None can be switched off; 0 is refused wherever it would mean something
else than "none". Relations that must hold: `out_buffer_bytes_soft` ≤ `out_buffer_bytes_max`,
`packet_bytes_max` ≤ `out_buffer_bytes_max`, `packet_bytes_max` ≤ `offline_bytes_max`.
"""


_TLS: Final = """\
For every `tls://` and `wss://` listener that names no certificate, key or authority itself.
"""

_LISTENER: Final = """\
Each table is one listener; see the guide to [listeners](../guides/listeners.md). A table that names
any certificate, key or authority uses nothing of `[tls]`. The environment variable holds all tables
as a JSON array.
"""


def render() -> str:
    """Render the whole page."""
    keys = list(catalogue().values())
    sections = [
        ("Node", "", [key for key in keys if "." not in key.name]),
        ("Table `[tls]`", _TLS, [key for key in keys if key.name.startswith("tls.")]),
        (
            "Tables `[[listener]]`",
            _LISTENER,
            [key for key in keys if key.name.startswith("listener.")],
        ),
        ("Table `[log]`", "", [key for key in keys if key.name.startswith("log.")]),
        ("Table `[storage]`", _STORAGE, [key for key in keys if key.name.startswith("storage.")]),
        ("Table `[limits]`", _LIMITS, [key for key in keys if key.name.startswith("limits.")]),
    ]
    parts = [_INTRODUCTION]
    for title, text, section_keys in sections:
        introduction = f"{text}\n" if text else ""
        parts.append(f"## {title}\n\n{introduction}{_table(section_keys)}")
    return "\n".join(parts)


def _table(keys: Iterable[Key]) -> str:
    rows = ["| Key | Values | Default | Environment | Flag | Meaning |", "|" + " --- |" * 6]
    for key in keys:
        flag = f"`{key.flag}`" if key.flag else "–"
        rows.append(
            f"| `{key.name}` | {key.kind} | {key.default} | `{key.environment}` | {flag} |"
            f" {key.meaning} |"
        )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
