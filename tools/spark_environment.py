"""Makes `.venv-spark` (or `.venv-spark42`) from `uv.lock`: one Spark release, and what tests it.

The two releases exclude each other, so each has an environment of its own, and neither is part of
`./start` or `./check`: 900 MB buy nothing for a broker. The package is not installed but named by a
`.pth` file, so that the Python workers which Spark starts find the tree as it stands, native module
included; run `./start --setup-only` first.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.setup import digest

HOUSE = Path(__file__).resolve().parent.parent
# Its last act; holds what was synced.
SYNCED: Final = "quantumqtt-synced"
FOLDERS: Final = {"43": ".venv-spark", "42": ".venv-spark42"}


def make(release: str) -> Path:
    """Bring the environment of one release to what the lock says; return its folder."""
    folder = HOUSE / FOLDERS[release]
    stamp = folder / SYNCED
    wanted = digest(HOUSE, ("uv.lock", "pyproject.toml"))
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return folder
    stamp.unlink(missing_ok=True)
    uv = shutil.which("uv") or str(HOUSE / ".venv" / "bin" / "uv")
    subprocess.run(
        [
            *(uv, "sync", "--frozen", "--no-install-project", "--python", sys.executable),
            *("--extra", "server", "--extra", "spark", "--group", f"spark{release}"),
            *("--group", "lake", "--group", "connect"),
        ],
        cwd=HOUSE,
        env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(folder)},
        check=True,
    )
    (packages,) = folder.glob("lib/python3.*/site-packages")
    (packages / "quantumqtt-tree.pth").write_text(f"{HOUSE / 'src'}\n", encoding="utf-8")
    stamp.write_text(wanted, encoding="utf-8")
    return folder


def check_java() -> None:
    """Name the remedy when there is no Java; Spark's own words for it are a stack trace."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        sys.exit(
            "error: no java on PATH; Spark needs 17 or newer\n"
            "hint: Debian and Ubuntu: apt install openjdk-17-jre-headless"
        )


def main() -> None:
    """Make one environment, then run pytest in it with the remaining words."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", choices=sorted(FOLDERS), default="43", help="of Spark")
    parser.add_argument("--only-make", action="store_true", help="run no tests")
    chosen, words = parser.parse_known_args()
    check_java()
    folder = make(chosen.release)
    if chosen.only_make:
        return
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pytest"]
    if "-m" not in words:
        command += ["-m", "not night"]
    command += words
    if not any((HOUSE / word.partition("::")[0]).exists() for word in words):
        command.append("tests/spark")
    # The activated environment's Python must not leak into workers of another one.
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{environment.get('PATH', os.defpath)}"
    os.chdir(HOUSE)
    os.execve(python, command, environment)


if __name__ == "__main__":
    main()
