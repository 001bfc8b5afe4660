"""A disk whose power can be cut under any program: what was not synced is lost or mixed up."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

from quantumqtt.cli.crash.disk import UNSHARE_HINT
from quantumqtt.cli.crash.disk_model import Loss
from quantumqtt.errors import StorageError

_ENDS_WITHIN_S: Final = 10.0


class PowerDisk:
    """The mount, and the process that serves it."""

    def __init__(self, directory: Path, losses: tuple[Loss, ...] = tuple(Loss)) -> None:
        """Mount an empty disk.

        Raises:
            StorageError: /dev/fuse is absent, or we may not mount.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._losses = losses
        self._server = subprocess.Popen(
            [sys.executable, "-m", "quantumqtt.cli.crash.power_server", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listen()

    @property
    def directory(self) -> Path:
        """Where it is mounted."""
        return self._directory

    def cut(self, dice: random.Random) -> str:
        """Lose the power and mount what survived; nobody may have a file open there."""
        loss = dice.choice(self._losses)
        assert self._server.stdin is not None
        order = {"seed": dice.getrandbits(32), "loss": loss.value}
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return self._listen()

    def _listen(self) -> str:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        answer = json.loads(line) if line else {"failed": "its process ended"}
        if "said" in answer:
            return str(answer["said"])
        raise StorageError(f"no disk to cut the power of: {answer['failed']}", UNSHARE_HINT)

    def fill(self) -> None:
        """This one does not fill; `SmallDisk` does."""
        raise AssertionError("a power disk is not to be filled")

    def free(self) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Unmount it; what lies there is gone."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        try:
            self._server.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server.stdout.close()
