"""`just bench WHAT …`: the one door to all benchmarks."""

import subprocess
import sys
from typing import Final

_DOORS: Final = {
    "quick": ("bench.peers", "--quick", "--repeats", "3"),
    "peers": ("bench.peers",),
    "growth": ("bench.growth",),
    "log": ("bench.log",),
    "counts": ("bench.counts",),
    "clients": ("bench.client",),
    "tls": ("bench.tls",),
    "scale": ("bench.scale",),
    "rules": ("bench.rules",),
    "torture": ("bench.torture",),
}


def main() -> int:
    """Start the module that was named; its arguments follow."""
    what, arguments = (sys.argv[1:2] or ["quick"])[0], sys.argv[2:]
    if what not in _DOORS:
        print(f"{what} is none of: {', '.join(_DOORS)}", file=sys.stderr)
        return 2
    module, *given = _DOORS[what]
    return subprocess.call([sys.executable, "-m", module, *given, *arguments])


if __name__ == "__main__":
    sys.exit(main())
