"""Searches for bytes that break an invariant of `fuzz/`, and keeps what is worth keeping.

    just fuzz TARGET SECONDS    search; `all` takes every target in turn
    just fuzz-keep TARGET       shrink what was found to what adds coverage, into fuzz/corpus/

The engine is libFuzzer, built by the stable compiler: instrumentation is an ordinary LLVM pass, and
no sanitizer is needed where `unsafe` is forbidden. What a search found lies under `target/fuzz`;
`fuzz/corpus/TARGET.txt`, one input per line in hexadecimal, is what the gate runs again.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.steps import stop_on_termination

HOUSE: Final = Path(__file__).resolve().parent.parent
FUZZ: Final = HOUSE / "fuzz"
WORK: Final = HOUSE / "target" / "fuzz"
GOLDEN: Final = HOUSE / "tests" / "golden"
TARGETS: Final = (
    "packet",
    "stream",
    "properties",
    "topics",
    "entry",
    "checkpoint",
    "connection",
    "websocket",
    "upgrade",
    "proxy",
    "block",
    "segment",
)
MEMORY_MIB: Final = 256
ONE_INPUT_S: Final = 10
# What is kept must stay readable as a diff and quick to run.
KEPT_INPUT_BYTES_MAX: Final = 512
KEPT_COUNT_MAX: Final = 400
_COVERAGE: Final = (
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "-Clto=off",
)
_CONNECT: Final = {
    3: bytes.fromhex("100f00064d514973647003020000000173"),
    4: bytes.fromhex("100d00044d51545404020000000173"),
    5: bytes.fromhex("100e00044d515454050200000000000173"),
}


def host_triple() -> str:
    """Ask the compiler what it builds for; naming it keeps build scripts free of coverage."""
    told = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"^host: (\S+)$", told, re.MULTILINE)
    if found is None:
        sys.exit("rustc does not say what it builds for")
    return found.group(1)


def build(target: str) -> Path:
    """Build one program with coverage and the engine."""
    triple = host_triple()
    command = [
        *("cargo", "build", "--release", "--locked", "--features", "engine", "--bin", target),
        *("--target", triple, "--manifest-path", str(FUZZ / "Cargo.toml")),
        *("--target-dir", str(WORK / "build")),
    ]
    environment = {**os.environ, "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(_COVERAGE)}
    subprocess.run(command, env=environment, check=True)
    return WORK / "build" / triple / "release" / target


def golden_packets() -> Iterator[tuple[str, bytes]]:
    """Read the vectors of tests/golden/wire: which versions, which bytes."""
    for file in sorted((GOLDEN / "wire").glob("*.txt")):
        for section in file.read_text(encoding="utf-8").split("\n[")[1:]:
            versions = re.findall(r"^versions: (.*)$", section, re.MULTILINE)
            lines = re.findall(r"^bytes: (.*)$", section, re.MULTILINE)
            yield " ".join(versions), b"".join(map(golden_bytes, lines))


def golden_bytes(line: str) -> bytes:
    """Read hexadecimal with quoted text between."""
    parts = re.findall(r'"([^"]*)"|([0-9a-fA-F]+)', line)
    return b"".join(bytes.fromhex(digits) if digits else text.encode() for text, digits in parts)


def seeds(target: str) -> Iterator[bytes]:
    """Make the first inputs of a target from the golden vectors."""
    if target == "entry":
        lines = (GOLDEN / "machine" / "entries.txt").read_text(encoding="utf-8").splitlines()
        yield from (bytes.fromhex(line.split()[1]) for line in lines if not line.startswith("#"))
        return
    if target == "checkpoint":
        yield from checkpoint_seeds()
    if target == "block":
        yield b"\xff"  # what is kept holds bodies; golden chunks are sealed
        return
    if target == "segment":
        yield from segment_seeds()
        return
    if target == "topics":
        yield from (b"a/+\n#\n$share/g/a/b\na/b\n$SYS/x\na", b"+/+/#\n/\n//\n\na\n$a/+\n/\n//a")
        return
    if target in {"websocket", "upgrade", "proxy"}:
        return  # their kept inputs were written by hand
    for versions, content in golden_packets():
        for choice, (name, level) in enumerate((("3.1", 3), ("3.1.1", 4), ("5.0", 5))):
            # "3.1" begins the name of "3.1.1" too: compare whole words.
            if name not in versions.split() and name.removesuffix(".0") not in versions.split():
                continue
            if target == "packet":
                yield bytes([choice]) + content
            if target == "stream":
                yield bytes([choice, 2, 60, 130]) + content + content
            if target == "connection":
                yield content if content[0] >> 4 == 1 else _CONNECT[level] + content
    if target == "properties":
        yield from (bytes([carrier, 0x26, 0, 1, 97, 0, 1, 98]) for carrier in range(14))
        yield from (bytes.fromhex(f"{carrier:02x}0101") for carrier in range(14))
        yield from (bytes.fromhex(f"{carrier:02x}23000a0b010b02") for carrier in range(14))


def segment_seeds() -> Iterator[bytes]:
    """Edit a log in every way the target knows: whole, a bit flipped, cut short, and bodies."""
    yield b"\x01"
    yield from (
        bytes([1, file, place, 0, 1 << place % 8]) for file in (0, 1) for place in range(16)
    )
    yield from (bytes([2, file, place, place]) for file in (0, 1) for place in (0, 4, 16, 31))
    yield from (bytes([3, kind, 1]) + bytes(40) for kind in range(1, 10))
    yield b"\x00" + b"QMQWAL" + bytes(64)


def checkpoint_seeds() -> Iterator[bytes]:
    """Take the golden checkpoint apart: every row of items it begins with, and a chunk as it is."""
    lines = (GOLDEN / "machine" / "checkpoint_1.txt").read_text(encoding="utf-8").splitlines()
    chunks = [bytes.fromhex(line.split()[1]) for line in lines if line.startswith("chunk ")]
    yield b"\x00" + chunks[0]
    # A header of 28 bytes, a sum of 16; the last chunk holds the item that ends all others.
    items = b"".join(chunk[28:-16] for chunk in chunks[:-1])
    place = 0
    while place < len(items):
        length, place = items[place + 1], place + 2
        if length >= 0x80:
            length, place = length & 0x7F | items[place] << 7, place + 1
        place += length
        yield b"\xff" + items[:place]
        yield b"\x07" + items[:place]


def kept_file(target: str) -> Path:
    """Name the file of a target's corpus."""
    return FUZZ / "corpus" / f"{target}.txt"


def unpack(target: str) -> Path:
    """Lay out seeds and corpus as the engine wants them: one file per input."""
    folder = WORK / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    inputs = set(seeds(target))
    if kept_file(target).exists():
        lines = kept_file(target).read_text(encoding="ascii").splitlines()
        inputs |= {bytes.fromhex(line) for line in lines if not line.startswith("#")}
    for content in inputs:
        (folder / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
    return folder


def search(target: str, seconds: int) -> int:
    """Search for a while; the status is the engine's, not 0 when it found something."""
    program, corpus = build(target), unpack(target)
    found = WORK / "found" / target
    found.mkdir(parents=True, exist_ok=True)
    command = [
        *(str(program), str(corpus), f"-max_total_time={seconds}"),
        *(f"-rss_limit_mb={MEMORY_MIB}", f"-timeout={ONE_INPUT_S}", "-print_final_stats=1"),
        f"-artifact_prefix={found}/",
    ]
    status = subprocess.run(command, check=False).returncode
    verdict = "nothing" if status == 0 else f"something, see {found.relative_to(HOUSE)}"
    print(f"{target}: found {verdict}; {len(list(corpus.iterdir()))} inputs in its corpus")
    return status


def keep(target: str) -> None:
    """Shrink the corpus to what adds coverage and write it where the gate runs it."""
    program, corpus = build(target), unpack(target)
    shrunk = WORK / "shrunk" / target
    shrunk.mkdir(parents=True, exist_ok=True)
    for old in shrunk.iterdir():
        old.unlink()
    subprocess.run([str(program), "-merge=1", str(shrunk), str(corpus)], check=True)
    inputs = sorted((file.read_bytes() for file in shrunk.iterdir()), key=lambda b: (len(b), b))
    kept = [content for content in inputs if 0 < len(content) <= KEPT_INPUT_BYTES_MAX]
    kept = kept[:KEPT_COUNT_MAX]
    lines = [
        f"# Inputs of the target {target}, written by `just fuzz-keep {target}`.",
        *(content.hex() for content in kept),
    ]
    kept_file(target).parent.mkdir(exist_ok=True)
    kept_file(target).write_text("\n".join(lines) + "\n", encoding="ascii")
    print(f"{target}: kept {len(kept)} of {len(inputs)} inputs")


def main() -> None:
    """Search or keep."""
    parser = argparse.ArgumentParser(description="Search for bytes that break an invariant.")
    parser.add_argument("action", choices=["search", "keep"])
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("seconds", type=int, nargs="?", default=60)
    arguments = parser.parse_args()
    stop_on_termination()
    target: str = arguments.target
    chosen = TARGETS if target == "all" else (target,)
    if arguments.action == "keep":
        for name in chosen:
            keep(name)
        return
    sys.exit(max(search(name, arguments.seconds) for name in chosen))


if __name__ == "__main__":
    main()
