"""The set-up behind both doors: `.venv` from the lock file, and the native module built into it.

Theory of operation. Three layers stand on one another, each with a stamp that is written last:

1. *environment*: `.venv` with the uv named in `uv.lock`. Stamp `made`: Python and place. A virtual
   environment cannot be moved, so a tree that was copied or renamed makes a new one.
2. *packages*: exactly what `uv.lock` says. Stamp `synced`: digest of the files that decide it.
3. *native module*: `quantumqtt._core`, release build, installed in place. Here cargo is asked every
   time, which is quick and knows better than any stamp; the stamp `installed` only tells whether
   the package has been registered in `.venv`.

Doing a layer again begins by removing its stamp and those above it. So wherever a run is
interrupted, the next one finds no stamp for the unfinished layer and does it from the start. A lock
on `target/setup.lock` keeps two runs apart; the kernel drops it when its holder dies.

Only the standard library is used: this runs before anything is installed.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tools.steps import StepFailed

HOUSE = Path(__file__).resolve().parent.parent
LAYERS = ("made", "synced", "installed")
NETWORK_HINT = (
    "if the output above speaks of connections or certificates: the first run needs a package"
    " index; later runs work offline. UV_INDEX_URL and PIP_INDEX_URL name another one"
)


class Runner(Protocol):
    """What the set-up needs from `steps.Progress`; tests pass a recording one."""

    def say(self, name: str, outcome: str) -> None:
        """Print one finished line."""

    def run(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        hint: str | None = None,
    ) -> str:
        """Run one command as a step and return its output."""


class Setup:
    """Brings one working tree to the state in which the broker and the tests can run."""

    def __init__(self, house: Path, runner: Runner) -> None:
        self._house = house
        self._runner = runner
        self._venv = house / ".venv"
        self.environment = child_environment(house)

    def run(self) -> None:
        """Do whatever is missing, in order.

        Raises:
            StepFailed: A tool is missing or a command failed; the hint says what to do.
        """
        check_toolchain(self._house, self.environment)
        with setup_lock(self._house):
            self._make_environment()
            self._sync_packages()
            self._build_native()

    def is_fresh(self) -> bool:
        """Tell whether a run would leave the environment and its packages alone."""
        return self._stamped("made", self._made_stamp()) and self._stamped(
            "synced", self._synced_stamp()
        )

    def _make_environment(self) -> None:
        if self._stamped("made", self._made_stamp()):
            self._runner.say("Python environment", "fresh")
            return
        self._unstamp("made")
        pin = uv_requirement(self._house / "uv.lock")
        self._runner.run(
            "Python environment",
            [base_python(), "-m", "venv", "--clear", self._venv],
            folder=self._house,
            environment=self.environment,
            hint="Debian and Ubuntu keep venv apart: apt install python3-venv",
        )
        pin_file = self._venv / "uv-requirement.txt"
        pin_file.write_text(pin, encoding="utf-8")
        self._runner.run(
            "uv",
            [self._program("python"), "-m", "pip", "install", "--quiet", "-r", pin_file],
            folder=self._house,
            environment=self.environment,
            hint=NETWORK_HINT,
        )
        self._stamp("made", self._made_stamp())

    def _sync_packages(self) -> None:
        wanted = self._synced_stamp()
        if self._stamped("synced", wanted):
            self._runner.say("locked packages", "fresh")
            return
        self._unstamp("synced")
        self._runner.run(
            "locked packages",
            [self._program("uv"), "sync", "--frozen", "--no-install-project", "--extra", "server"],
            folder=self._house,
            environment=self.environment,
            hint=NETWORK_HINT,
        )
        self._stamp("synced", wanted)

    def _build_native(self) -> None:
        wanted = digest(self._house, ("pyproject.toml",))
        registered = self._stamped("installed", wanted)
        if not registered:
            self._unstamp("installed")
        output = self._runner.run(
            "native module (release)",
            [
                *(self._program("maturin"), "develop", "--release", "--locked"),
                "--skip-install" if registered else "--uv",
            ],
            folder=self._house,
            environment=self.environment,
            hint="if crates could not be fetched: the first build needs crates.io (see cargo's"
            " net.* and source.* settings); later builds work offline",
        )
        compiled = len(re.findall(r"^\s*Compiling ", output, re.MULTILINE))
        self._runner.say("  crates compiled", str(compiled) if compiled else "none, fresh")
        self._stamp("installed", wanted)

    def _program(self, name: str) -> Path:
        return self._venv / "bin" / name

    def _made_stamp(self) -> str:
        return json.dumps({"python": sys.version, "house": str(self._house)})

    def _synced_stamp(self) -> str:
        return digest(self._house, ("uv.lock", "pyproject.toml"))

    def _stamp_file(self, layer: str) -> Path:
        return self._venv / f"quantumqtt-{layer}"

    def _stamped(self, layer: str, wanted: str) -> bool:
        try:
            return self._stamp_file(layer).read_text(encoding="utf-8") == wanted
        except OSError:
            return False

    def _stamp(self, layer: str, value: str) -> None:
        """Say that a layer is done; by rename, so that the stamp is never half written."""
        partial = self._stamp_file(layer).with_suffix(".partial")
        partial.write_text(value, encoding="utf-8")
        partial.replace(self._stamp_file(layer))

    def _unstamp(self, layer: str) -> None:
        """Forget a layer and all that stand on it."""
        for above in reversed(LAYERS[LAYERS.index(layer) :]):
            self._stamp_file(above).unlink(missing_ok=True)


def child_environment(house: Path) -> dict[str, str]:
    """Make the environment every command of the doors and recipes runs in."""
    environment = dict(os.environ)
    cargo_home = Path(environment.get("CARGO_HOME", Path.home() / ".cargo"))
    folders = [str(house / ".venv" / "bin"), environment.get("PATH", os.defpath)]
    # rustup changes PATH in login shells only; cron, CI and editors often have none.
    folders.append(str(cargo_home / "bin"))
    environment["PATH"] = os.pathsep.join(folders)
    environment["VIRTUAL_ENV"] = str(house / ".venv")
    environment["UV_PROJECT_ENVIRONMENT"] = str(house / ".venv")
    environment["UV_PYTHON_DOWNLOADS"] = "never"
    environment.setdefault("UV_SYSTEM_CERTS", "true")
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    environment["PYTHONUNBUFFERED"] = "1"
    environment.pop("PYTHONHOME", None)
    return environment


def check_toolchain(house: Path, environment: Mapping[str, str]) -> None:
    """Name what is missing before anything long begins.

    Raises:
        StepFailed: No cargo, a compiler older than Cargo.toml asks for, or no C linker.
    """
    path = environment["PATH"]
    wanted = tomllib.loads((house / "Cargo.toml").read_text(encoding="utf-8"))
    minimum = str(wanted["workspace"]["package"]["rust-version"])
    if shutil.which("cargo", path=path) is None or shutil.which("rustc", path=path) is None:
        raise StepFailed(
            "toolchain",
            "cargo is not on PATH",
            hint=f"install Rust {minimum} or newer: https://rustup.rs, or your distribution's"
            " cargo if it is new enough",
        )
    found = rust_version(path)
    if numbers(found) < numbers(minimum):
        raise StepFailed(
            "toolchain", f"rustc {found} is older than {minimum}", hint="run `rustup update stable`"
        )
    if all(shutil.which(linker, path=path) is None for linker in ("cc", "gcc", "clang")):
        raise StepFailed(
            "toolchain",
            "no C linker (cc) on PATH; Rust needs one",
            hint="Debian and Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc",
        )


def rust_version(path: str) -> str:
    """Ask rustc for its version; "0" when it does not answer as expected."""
    rustc = shutil.which("rustc", path=path) or "rustc"
    asked = subprocess.run([rustc, "--version"], capture_output=True, text=True, check=False)
    answer = re.search(r"rustc (\d+\.\d+\.\d+)", asked.stdout)
    return answer.group(1) if answer else "0"


def base_python() -> Path:
    """Find the Python outside any virtual environment.

    With `.venv` activated, `sys.executable` lies inside what is about to be cleared.
    """
    major, minor = sys.version_info[:2]
    base = Path(sys.base_prefix) / "bin" / f"python{major}.{minor}"
    return base if base.exists() else Path(sys.executable)


def numbers(version: str) -> tuple[int, ...]:
    """Split a dotted version for comparison."""
    return tuple(int(part) for part in version.split("."))


def uv_requirement(lock: Path) -> str:
    """Read the pinned uv, with its hashes, out of `uv.lock` as a requirements line for pip."""
    packages = tomllib.loads(lock.read_text(encoding="utf-8"))["package"]
    uv = next((package for package in packages if package["name"] == "uv"), None)
    if uv is None:
        raise StepFailed("uv", "uv.lock names no uv", hint="restore uv.lock, then try again")
    hashes = " ".join(f"--hash={wheel['hash']}" for wheel in uv["wheels"])
    return f"uv=={uv['version']} {hashes}\n"


def digest(house: Path, names: Sequence[str]) -> str:
    """Digest the files that decide a layer."""
    total = hashlib.sha256()
    for name in names:
        content = (house / name).read_bytes()
        total.update(f"{name}:{len(content)}:".encode())
        total.update(content)
    return total.hexdigest()


@contextmanager
def setup_lock(house: Path) -> Iterator[None]:
    """Keep two set-ups of one tree apart; the second waits."""
    (house / "target").mkdir(exist_ok=True)
    with (house / "target" / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("  another set-up of this tree is running; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
