"""Builds the wheel once and proves it where a user would: no Rust, no source tree, no extras.

Steps: build; install into an empty environment with only what the package itself requires; import
it with every extra absent; ask for help; start the broker and pass one QoS 1 message through it
with a peer that shares no code with us; stop it by SIGTERM and expect 0. At the end the public face
is verified as a type checker sees it from outside.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tools.raw_peer import RawPeer
from tools.steps import stop_on_termination

HOUSE = Path(__file__).resolve().parent.parent
WORK = HOUSE / "target" / "wheel"
ENVIRONMENT = WORK / "environment"
START_S_MAX = 30.0
STOP_S_MAX = 30.0

# Modules that only extras bring; none may be needed to import the package.
EXTRAS = ("deltalake", "pandas", "prometheus_client", "pyarrow", "pyspark", "starlette", "uvicorn")

# Rooms whose names a user imports; what lies behind them is held to mypy alone.
PUBLIC_ROOMS = ("errors", "mqtt", "client", "queues", "testing")
# Public, and typed by what an extra brings: where the extra is absent, its types are unknown.
TYPED_BY_EXTRAS = ("quantumqtt.testing.strategies",)
# Rooms that no public name leads into; with extras absent their types are unknown anyway.
NOT_REACHED = ("api", "cli", "flight", "operations", "sqs")


def run(*words: str | Path, environment: dict[str, str] | None = None) -> str:
    """Run one command, show it, and return what it says; exit when it fails."""
    command = [str(word) for word in words]
    print("$", *command, flush=True)
    done = subprocess.run(
        command, cwd=WORK, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n")
        sys.exit(f"failed with {done.returncode}")
    return done.stdout


def build() -> Path:
    """Build the wheel from the tree; cargo reuses what the set-up compiled."""
    run(
        *("maturin", "build", "--release", "--locked", "--quiet"),
        *("--manifest-path", HOUSE / "crates" / "bridge" / "Cargo.toml", "--out", WORK / "dist"),
    )
    (wheel,) = (WORK / "dist").glob("quantumqtt-*.whl")
    print(f"{wheel.name}: {wheel.stat().st_size / 1024:.0f} KiB")
    return wheel


def install(wheel: Path) -> None:
    """Install the wheel, and the locked versions of what it requires, where nothing else is."""
    pins = run(
        *("uv", "export", "--project", HOUSE, "--frozen", "--quiet", "--no-hashes"),
        *("--no-default-groups", "--no-emit-project", "--all-extras", "--group", "spark43"),
    )
    (WORK / "pins.txt").write_text(pins, encoding="utf-8")
    run("uv", "venv", "--quiet", "--python", sys.executable, ENVIRONMENT)
    run(
        *("uv", "pip", "install", "--quiet", "--python", ENVIRONMENT),
        *("--constraints", WORK / "pins.txt", wheel),
    )


def user_environment() -> dict[str, str]:
    """Make an environment in which nothing but the wheel's own folder is on PATH."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith(("CARGO", "RUST"))
    }
    environment["PATH"] = str(ENVIRONMENT / "bin")
    for tool in ("cargo", "rustc", "maturin"):
        if found := shutil.which(tool, path=environment["PATH"]):
            sys.exit(f"the empty environment is not empty: {found}")
    return environment


def check_import(environment: dict[str, str]) -> None:
    """Import the package and its native module with every extra absent."""
    program = (
        "import importlib.util as u, quantumqtt, quantumqtt._core as c;"
        f" present = [m for m in {EXTRAS!r} if u.find_spec(m)];"
        " assert not present, f'extras are present: {present}';"
        " assert u.find_spec('pyspark_quantumqtt'), 'Spark would not find its source';"
        " names = [getattr(quantumqtt, name) for name in quantumqtt.__all__];"
        " print('imported', quantumqtt.__file__, c.__version__, len(names), 'names')"
    )
    said = run(ENVIRONMENT / "bin" / "python", "-c", program, environment=environment)
    print(said, end="")
    if str(ENVIRONMENT) not in said:
        sys.exit("the package was imported from somewhere else")


@contextmanager
def broker(environment: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Run the installed broker on a free port; on leaving, stop it and expect a clean end."""
    command = [
        *(str(ENVIRONMENT / "bin" / "quantumqtt"), "serve", "--json", "--admin", "off"),
        *("--listen", "tcp://127.0.0.1:0"),
    ]
    print("$", *command, flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="quantumqtt-wheel-") as folder,
        subprocess.Popen(
            [*command, "--data", f"{folder}/data"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        # A broker that never gets ready is killed, which ends the read below.
        deadline = threading.Timer(START_S_MAX, process.kill)
        deadline.start()
        try:
            assert process.stdout is not None
            ready = next((line for line in process.stdout if line.startswith("{")), None)
            deadline.cancel()
            if ready is None:
                sys.exit(f"the broker did not get ready within {START_S_MAX:.0f} s")
            address = urlsplit(json.loads(ready)["listeners"][0])
            yield address.hostname or "", address.port or 0
            process.send_signal(signal.SIGTERM)
            status = process.wait(STOP_S_MAX)
        finally:
            deadline.cancel()
            process.kill()
    if status != 0:
        sys.exit(f"SIGTERM: the broker ended with {status}, wanted 0")


def pass_message(host: str, port: int) -> None:
    """Send one QoS 1 message from one peer to another."""
    with RawPeer(host, port, "wheel-reader") as reader, RawPeer(host, port, "wheel-writer") as out:
        reader.subscribe("wheel/+", qos=1)
        out.publish("wheel/check", b"one message")
        got = reader.receive_message()
    if got != ("wheel/check", b"one message"):
        sys.exit(f"another message came out: {got!r}")
    print(f"passed one message through {host}:{port}")


def verify_types() -> None:
    """Let the type checker say whether the public face is completely typed."""
    checker = Path(sys.executable).with_name("basedpyright")
    # It looks for packages where the first `python` on PATH has them; --pythonpath is passed over.
    path = os.pathsep.join((str(ENVIRONMENT / "bin"), os.environ.get("PATH", os.defpath)))
    done = subprocess.run(
        [checker, "--verifytypes", "quantumqtt", "--ignoreexternal", "--outputjson"],
        cwd=WORK,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)["typeCompleteness"]
    if not report["packageRootDirectory"].startswith(str(ENVIRONMENT)):
        sys.exit(f"verified another package: {report['packageRootDirectory'] or 'none found'}")
    unclear = [
        symbol
        for symbol in report["symbols"]
        if symbol["isExported"] and (not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"])
    ]
    public = [symbol for symbol in report["symbols"] if is_public(symbol["name"])]
    refused = [symbol["name"] for symbol in unclear if is_public(symbol["name"])]
    if refused or not public:
        # What makes a public class unclear may be a member defined in a room behind it.
        for symbol in unclear:
            for said in symbol["diagnostics"]:
                if room_of(symbol["name"]) not in NOT_REACHED:
                    print(f"{symbol['name']}: {said['message']}")
        sys.exit(f"of {len(public)} public symbols, not completely typed: {', '.join(refused)}")
    print(f"{len(public)} public symbols, all completely typed")


def room_of(name: str) -> str:
    """Take the room out of a symbol's full name."""
    return name.removeprefix("quantumqtt.").partition(".")[0]


def is_public(name: str) -> bool:
    """Tell whether a symbol is what users import, rather than what lies behind it."""
    if name.startswith(TYPED_BY_EXTRAS):
        return False
    return room_of(name) in PUBLIC_ROOMS or name.count(".") == 1


def main() -> None:
    """Build, install, and prove the wheel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    stop_on_termination()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    install(build())
    environment = user_environment()
    check_import(environment)
    run(ENVIRONMENT / "bin" / "quantumqtt", "--help", environment=environment)
    with broker(environment) as (host, port):
        pass_message(host, port)
    verify_types()


if __name__ == "__main__":
    main()
