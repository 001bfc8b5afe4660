"""The process behind a `PowerDisk`: serves one mount, and loses its power when told to.

It is a process of its own because whoever waits for a file must not be the one who serves it. It
obeys one JSON object per line on standard input, answers each with one, and unmounts and ends
when that input ends, so that a parent that died leaves nothing mounted.
"""

import errno
import json
import os
import random
import select
import sys
from pathlib import Path

from quantumqtt.cli.crash.disk import mount, unmount
from quantumqtt.cli.crash.disk_model import DiskModel, Loss
from quantumqtt.cli.crash.fuse import REQUEST_BYTES_MAX, Requests
from quantumqtt.errors import StorageError

_DEVICE = "/dev/fuse"


class PowerServer:
    """One model, mounted again after every cut."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._model = DiskModel()
        self._model.nodes[1].owner = (os.geteuid(), os.getegid())
        self._device = self._mount()

    def _mount(self) -> int:
        device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        options = (
            f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()},"
            "default_permissions,allow_other"
        )
        try:
            mount("quantumqtt-power", self._target, "fuse", options)
        except StorageError:
            os.close(device)
            raise
        self._requests = Requests(self._model)
        return device

    def _unmount(self) -> None:
        os.close(self._device)  # requests that still wait fail, as they do without power
        unmount(self._target)

    def serve(self) -> None:
        """Serve until standard input ends."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._device, select.POLLIN)
        try:
            while True:
                for ready, _ in poll.poll():
                    if ready == self._device:
                        self._serve_one()
                        continue
                    line = sys.stdin.buffer.readline()
                    if not line:
                        return
                    poll.unregister(self._device)
                    said = self._cut(json.loads(line))
                    poll.register(self._device, select.POLLIN)
                    print(json.dumps({"said": said}), flush=True)
                    break
        finally:
            self._unmount()

    def _serve_one(self) -> None:
        try:
            request = os.read(self._device, REQUEST_BYTES_MAX)
            answer = self._requests.answer(request)
            if answer is not None:
                os.write(self._device, answer)
        except OSError as error:
            # ENOENT: the process that asked was killed meanwhile, and nobody wants the answer.
            if error.errno not in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                raise

    def _cut(self, order: dict[str, int | str]) -> str:
        self._unmount()
        said = self._model.cut(random.Random(order["seed"]), Loss(order["loss"]))
        self._device = self._mount()
        return said


def main() -> None:
    """Mount on the directory named and serve it."""
    try:
        server = PowerServer(Path(sys.argv[1]))
    except (OSError, StorageError) as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        sys.exit(1)
    print(json.dumps({"said": "mounted"}), flush=True)
    server.serve()


if __name__ == "__main__":
    main()
