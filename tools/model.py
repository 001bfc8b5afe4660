"""Walks the state machine beside the reference model: `just model 1000000`.

Prints the seed it begins from. When the two part, prints the shortest way there and the line that
walks it again; such a seed belongs into `tests/model/seeds.toml`.
"""

import argparse
import random
import sys
import time

from tests.model.versus import Difference
from tests.model.walk import STEPS_PER_WALK, walk_all


def main() -> int:
    """Walk as many steps as asked for; the exit status tells whether all agreed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", type=int, help=f"commands, in walks of {STEPS_PER_WALK}")
    parser.add_argument("--seed", help="where to begin; with one walk, the seed of that walk")
    arguments = parser.parse_args()
    count = max(1, -(-arguments.steps // STEPS_PER_WALK))
    first: str = arguments.seed or f"{random.SystemRandom().getrandbits(32):08x}"
    print(f"{count} walks of {STEPS_PER_WALK} steps from seed {first}", flush=True)
    began_s = time.monotonic()
    try:
        seen = walk_all([first] if count == 1 else [f"{first}-{n}" for n in range(count)])
    except Difference as difference:
        print(difference)
        return 1
    for kind, times in sorted(seen.items()):
        print(f"{times:>10} {kind}")
    print(f"no difference in {count * STEPS_PER_WALK} steps, {time.monotonic() - began_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
