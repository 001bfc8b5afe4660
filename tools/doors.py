"""The two doors of the house: `./start` runs the broker, `./check` runs the gate.

Both set the tree up first (tools/setup.py) and then become the program they start, so that Ctrl-C
and SIGTERM reach it directly.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools import system_packages
from tools.setup import Setup
from tools.spark_environment import FOLDERS, SYNCED, check_java, make
from tools.steps import Progress, StepFailed, elapsed, stop_on_termination

HOUSE = Path(__file__).resolve().parent.parent


def main() -> None:
    """Open the door named by the first argument."""
    stop_on_termination()
    door, *words = sys.argv[1:]
    try:
        if door == "start":
            start(words)
        else:
            check(words)
    except StepFailed as failure:
        sys.stdout.flush()
        print(f"error: {failure}", file=sys.stderr)
        if failure.hint:
            print(f"hint: {failure.hint}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\ninterrupted; the next run goes on from here", file=sys.stderr)
        sys.exit(130)


def start(words: Sequence[str]) -> None:
    """Set up, then become the broker with its pipeline."""
    parser = argparse.ArgumentParser(
        prog="./start",
        description="Set up this tree and start the broker on the embedded default, with the"
        " pipeline where Spark is set up.",
        epilog="All other arguments go to `quantumqtt up`; see `.venv/bin/quantumqtt up --help`.",
        allow_abbrev=False,
    )
    parser.add_argument("--setup-only", action="store_true", help="stop before the broker starts")
    parser.add_argument(
        "--pipeline", action="store_true", help="set up Spark, too (900 MB), and insist on it"
    )
    parser.add_argument("--no-pipeline", action="store_true", help="only the broker")
    parser.add_argument(
        "--demo", action="store_true", help="set up Spark where Java is, and add devices"
    )
    chosen, rest = parser.parse_known_args(words)
    set_up()
    if not chosen.no_pipeline and (chosen.pipeline or (chosen.demo and has_java())):
        set_up_spark()
    if chosen.setup_only:
        return
    broker = HOUSE / ".venv" / "bin" / "quantumqtt"
    command = [str(broker), "up"]
    spark = HOUSE / FOLDERS["43"]
    if chosen.no_pipeline:
        command += ["--no-pipeline"]
    elif (spark / SYNCED).exists() and "--spark-python" not in rest:
        command += ["--spark-python", str(spark / "bin" / "python")]
    command += [f"--{name}" for name in ("pipeline", "demo") if getattr(chosen, name)]
    become([*command, *rest], dict(os.environ))


def has_java() -> bool:
    """Tell whether there is a Java that Spark could use."""
    return "JAVA_HOME" in os.environ or shutil.which("java") is not None


def set_up_spark() -> None:
    """Make the environment of Spark, of which the broker's own needs nothing."""
    print("  Spark (900 MB at the first time) …", flush=True)
    try:
        check_java()
        make("43")
    except subprocess.CalledProcessError as error:
        raise StepFailed(
            "Spark",
            f"uv ended with exit code {error.returncode}",
            hint="its words stand above; without Spark: ./start --no-pipeline",
        ) from error


def check(words: Sequence[str]) -> None:
    """Set up, see that stock programs and Rust's checkers are there, then become `just check`."""
    argparse.ArgumentParser(
        prog="./check",
        description="Set up this tree, then run everything that must hold: `just check`."
        f" {system_packages.OPT_OUT}=1 leaves out the tests that need system packages.",
    ).parse_args(words)
    setup = set_up()
    check_rust_components(setup.environment["PATH"])
    system_packages.provide(progress(), HOUSE)
    just = HOUSE / ".venv" / "bin" / "just"
    become([str(just), "--justfile", str(HOUSE / "justfile"), "check"], setup.environment)


def set_up() -> Setup:
    """Run the set-up with a heading and a total."""
    began = time.monotonic()
    print("set-up", flush=True)
    setup = Setup(HOUSE, progress())
    setup.run()
    print(f"set-up done in {elapsed(began)}", flush=True)
    return setup


def progress() -> Progress:
    """Make the progress display of this tree."""
    return Progress(HOUSE / "target" / "logs")


def check_rust_components(path: str) -> None:
    """Name a missing clippy or rustfmt before anything long begins.

    Raises:
        StepFailed: One of them is absent.
    """
    for program, package in (("cargo-clippy", "clippy"), ("cargo-fmt", "rustfmt")):
        if shutil.which(program, path=path) is None:
            raise StepFailed(
                "toolchain",
                f"{program} is not on PATH",
                hint=f"run `rustup component add {package}` (or install your distribution's"
                f" rust-{package})",
            )


def become(command: list[str], environment: dict[str, str]) -> None:
    """Replace this process, so that signals and the exit status are the command's own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, environment)
