# The one door to every task. `just` alone lists them; ./start and ./check open it for newcomers.
# Recipes stay one line long: what needs thought is typed Python under tools/.

set shell := ["bash", "-euo", "pipefail", "-c"]

programs := justfile_directory() / ".venv/bin"
cargo_programs := env("CARGO_HOME", env("HOME", "/") / ".cargo") / "bin"
export PATH := programs + ":" + env("PATH") + ":" + cargo_programs
export PYO3_PYTHON := programs / "python"
export PYTHONUNBUFFERED := "1"
export UV_SYSTEM_CERTS := env("UV_SYSTEM_CERTS", "true")

# List the recipes
[private]
default:
    @just --justfile {{ quote(justfile()) }} --list --unsorted

# --- every day -----------------------------------------------------------------------------------

# Make .venv from the lock file and build the native module into it
[group('every day')]
setup:
    ./start --setup-only

# Rebuild the native module in place (release); say `just build dev` for a quick one
[group('every day')]
build profile="release":
    maturin develop --profile {{ profile }} --skip-install

# Run the gate, or some of its stages: tidy fast wheel whole verdict
[group('every day')]
check *stages:
    python -m tools.check {{ stages }}

# Put right what a program can put right: formats, lint, the rendered ledger
[group('every day')]
fix:
    cargo fmt --all
    ruff check --fix --quiet src tests tools bench
    ruff format --quiet src tests tools bench
    python -m tools.ledger --write
    python -m tools.hardening --write

# Run chosen Python tests: just test tests/unit -k trie
[group('every day')]
test *arguments:
    pytest {{ arguments }}

# Run the tests of one crate: just crate wire
[group('every day')]
crate name *arguments:
    cargo test -p quantumqtt-{{ name }} {{ arguments }}

# Render the generated reference pages
[group('every day')]
docs:
    python -m tools.ledger --write
    python -m tools.hardening --write
    python -m quantumqtt.config.reference > docs/reference/configuration.md
    python -m quantumqtt.cli.reference > docs/reference/cli.md
    python -m tools.client_reference --write

# --- stage tidy: seconds -------------------------------------------------------------------------

# Rust and Python are formatted
[group('tidy')]
format-check:
    cargo fmt --all --check
    ruff format --check src tests tools bench

# ruff, with the rules of pyproject.toml
[group('tidy')]
lint:
    ruff check src tests tools bench

# mypy strict over src, tests, tools and bench
[group('tidy')]
types:
    mypy

# basedpyright, strict on the public face
[group('tidy')]
face:
    basedpyright --level error

# Who may import whom
[group('tidy')]
import-rules:
    python -m tools.import_rules

# House rules about files: sizes, leftovers, links, dead files
[group('tidy')]
house-rules:
    python -m tools.tidy

# Lock files agree with what they lock
[group('tidy')]
locks:
    uv lock --check --offline
    cargo metadata --locked --format-version 1 --quiet > target/cargo-metadata.json

# Licences and sources of the crates we build
[group('tidy')]
licences: locks
    python -m tools.licences target/cargo-metadata.json

# Clippy, warnings refused, tests included
[group('tidy')]
clippy:
    cargo clippy --workspace --all-targets --locked --quiet -- -D warnings

# --- stage fast: a minute or two -----------------------------------------------------------------

# Tests beside the Rust code; the bridge is tested from Python, through the module it builds
[group('fast')]
crates:
    python -m tools.suites crates

# unit, property and house tests
[group('fast')]
unit:
    python -m tools.suites fast

# The typed face of the native module agrees with the build
[group('fast')]
stubs:
    python -m mypy.stubtest quantumqtt._core --mypy-config-file pyproject.toml \
        --allowlist tools/stubtest.allow

# --- stages wheel and whole: minutes -------------------------------------------------------------

# Build the wheel, install it where there is no Rust, pass one message through it
[group('whole')]
wheel:
    python -m tools.wheel

# conformance, golden, end-to-end and whatever other folders tests/ has
[group('whole')]
whole:
    python -m tools.suites whole

# Compare both ledgers, requirements and old wounds, with what the stages above have shown
[group('whole')]
ledger:
    python -m tools.ledger --check
    python -m tools.hardening --check

# --- by hand, or at night ------------------------------------------------------------------------

# Longer searches: more examples, release-mode crate tests, tests marked night
[group('night')]
night: advisories
    PROPTEST_CASES=20000 cargo test --workspace --exclude quantumqtt-bridge --release --locked
    HYPOTHESIS_PROFILE=night pytest tests --timeout=3600

# Benchmarks on a quiet machine: quick, peers, growth, counts, clients, tls, scale, rules, torture
[group('night')]
bench what="quick" *arguments:
    python -m bench {{ what }} {{ arguments }}

# Run seeds of the simulator on all cores: just simulate 1000 [--first 1] [--bug NAME]
[group('night')]
simulate seeds="1000" *arguments:
    python -m quantumqtt.simulation {{ seeds }} {{ arguments }}

# Walk the state machine beside the reference model: just model 1000000 [--seed WORD]
[group('night')]
model steps *arguments:
    python -m tools.model {{ steps }} {{ arguments }}

# Damage the state machine on purpose, one fault at a time: some test must notice each
[group('night')]
mutants *arguments:
    python -m tools.mutants {{ arguments }}

# Licences, sources, duplicates and advisories, by cargo-deny (compiled at the first use)
[group('night')]
advisories:
    command -v cargo-deny > /dev/null || cargo install --locked cargo-deny
    cargo deny check

# Mixed traffic for minutes; figures and a plot are left in target/soak
[group('night')]
soak minutes="10":
    SOAK_MINUTES={{ minutes }} pytest -q -m night tests/soak tests/hardening

# MQTT.js in headless Chromium and under Node (`--node`: there only); names what is missing
[group('night')]
browser *arguments:
    python -m tools.browser {{ arguments }}

# Spark's tests, in an environment of their own: just spark [--release 42] [pytest's words]
[group('night')]
spark *arguments:
    python -m tools.spark_environment {{ arguments }}

# Broker and pipeline killed in turn and together while so many messages land: just kills 2000000
[group('night')]
kills messages="2000000" *arguments:
    KILL_MESSAGES={{ messages }} \
        python -m tools.spark_environment -m night tests/spark/test_kills.py {{ arguments }}

# The client between proxies that hurt it, for an hour in all, or `just soak-client 5` minutes
[group('night')]
soak-client minutes="60":
    CHAOS_SECONDS=$(({{ minutes }} * 60)) pytest -q -m night -k hour tests/client/test_chaos.py

# The client's suite against HiveMQ, which Maven fetches at the first use
[group('night')]
third-broker *arguments:
    test -d target/third-broker || mvn -q -B -f tests/harness/third_broker/pom.xml \
        dependency:copy-dependencies -DoutputDirectory=$PWD/target/third-broker
    pytest -q -m night -k "hivemq and not hour" tests/client {{ arguments }}

# Hurt our broker for hours, kills and power cuts: just torture 200
[group('night')]
torture rounds="200":
    TORTURE_ROUNDS={{ rounds }} pytest -q -m night tests/faults --timeout=7200

# Kill and cut the power of Mosquitto with persistence and of ours, into bench/results
[group('night')]
torture-peers rounds="20":
    python -m bench torture --rounds {{ rounds }}

# Every interleaving of the protocols between shards, by loom
[group('night')]
races:
    cargo test -p quantumqtt-reactor --release --features loom --lib races

# The same operations into our log and into raft-engine, which compiles for minutes
[group('night')]
wal-oracle:
    cargo test -p quantumqtt-journal --release --features oracle --lib oracle

# What the log costs per entry, beside the disk it stands on: just wal-bench /var/tmp 5
[group('night')]
wal-bench directory="/tmp" seconds="2":
    cargo run -qrp quantumqtt-journal --example wal_bench -- {{ directory }} {{ seconds }}

# Search for bytes that break a decoder: just fuzz packet 600, or `all`
[group('night')]
fuzz target="all" seconds="600":
    python -m tools.fuzz search {{ target }} {{ seconds }}

# Keep what a search found worth keeping in fuzz/corpus, where the gate runs it again
[group('night')]
fuzz-keep target="all":
    python -m tools.fuzz keep {{ target }}

# Join the fragments under changes/ into CHANGELOG.md: just release-notes 0.2.0
[group('night')]
release-notes version:
    python -m tools.changelog {{ version }}
