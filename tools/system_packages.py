"""Stock programs that tests drive: installed when we may, named with the command otherwise.

Tests with real third-party clients prove more than any peer of our own, so a missing one is an
error with a remedy. Whoever cannot install it says so with `QUANTUMQTT_WITHOUT_SYSTEM_PACKAGES=1`;
the tests are then reported as not run.

Debian starts a service when its package is installed. We want the program, not a broker on port
1883, so a policy file that forbids starting services stands while apt runs. It carries our mark;
one left behind by an interrupted run is recognised and removed by the next.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.steps import Progress, StepFailed

OPT_OUT = "QUANTUMQTT_WITHOUT_SYSTEM_PACKAGES"
POLICY = Path("/usr/sbin/policy-rc.d")
POLICY_MARK = "# written by quantumqtt's ./check while apt runs; safe to remove"


@dataclass(frozen=True, slots=True)
class SystemPackage:
    """A Debian package and the program in it that tests call."""

    name: str
    program: str


PACKAGES = (
    SystemPackage("mosquitto-clients", "mosquitto_pub"),
    SystemPackage("mosquitto", "mosquitto"),
    SystemPackage("strace", "strace"),
)


def find_program(name: str) -> str | None:
    """Find a stock program; daemons live in /usr/sbin, which is not on everybody's PATH."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
    return shutil.which(name, path=path)


def missing_packages() -> list[SystemPackage]:
    """List the packages whose program is absent."""
    return [package for package in PACKAGES if find_program(package.program) is None]


def left_out_on_purpose() -> bool:
    """Tell whether the person said that system packages are to be done without."""
    return os.environ.get(OPT_OUT, "") not in ("", "0")


def install_command(packages: Sequence[SystemPackage]) -> list[str]:
    """Make the apt command that installs the packages and nothing they merely recommend."""
    names = [package.name for package in packages]
    return ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *names]


def remedy(packages: Sequence[SystemPackage]) -> str:
    """Say what a person can do about missing packages."""
    return (
        f"as root: {' '.join(install_command(packages))}"
        f" (or set {OPT_OUT}=1 to leave those tests out on purpose)"
    )


def provide(progress: Progress, folder: Path) -> None:
    """Install what is missing when we are root on a Debian; otherwise name it.

    Raises:
        StepFailed: Something is missing and cannot be installed by us; the hint is the command.
    """
    missing = missing_packages()
    if not missing:
        progress.say("system packages", "present")
        return
    if left_out_on_purpose():
        names = ", ".join(package.name for package in missing)
        progress.say("system packages", f"left out on purpose: {names}")
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        names = ", ".join(package.name for package in missing)
        raise StepFailed("system packages", f"missing: {names}", hint=remedy(missing))
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with services_held_back():
        progress.run(
            "package lists",
            ["apt-get", "update", "--quiet"],
            folder=folder,
            environment=environment,
            hint=remedy(missing),
        )
        progress.run(
            "system packages",
            install_command(missing),
            folder=folder,
            environment=environment,
            hint=remedy(missing),
        )


@contextmanager
def services_held_back(policy: Path = POLICY) -> Iterator[None]:
    """Forbid packages to start their services for as long as the block lasts."""
    if policy.exists() and POLICY_MARK not in policy.read_text(encoding="utf-8"):
        yield  # the machine has a policy of its own; it is not ours to change
        return
    partial = policy.with_suffix(".partial")
    partial.write_text(f"#!/bin/sh\n{POLICY_MARK}\nexit 101\n", encoding="utf-8")
    partial.chmod(0o755)
    partial.replace(policy)
    try:
        yield
    finally:
        policy.unlink(missing_ok=True)


def main() -> None:
    """List what is missing; exit 1 if anything is."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    missing = missing_packages()
    if missing:
        print(f"missing: {', '.join(package.name for package in missing)}")
        print(f"hint: {remedy(missing)}")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
