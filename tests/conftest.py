"""What every test may rely on: recorded outcomes, stock programs by name, Hypothesis profiles."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tools import system_packages

# `check` searches the same examples each time: a red gate must be red again at the next desk.
settings.register_profile("check", derandomize=True, deadline=None, max_examples=100)
settings.register_profile(
    "night",
    deadline=None,
    max_examples=5_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "check"))


class OutcomeRecord:
    """Collects the outcome of every test, for the ledger of requirements."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._outcomes: dict[str, str] = {}
        self.left_out: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst of set-up, call and teardown."""
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
        elif report.skipped:
            self._outcomes.setdefault(report.nodeid, "left out")
            if isinstance(report.longrepr, tuple):
                self.left_out[report.nodeid] = report.longrepr[2]
        elif report.when == "call":
            self._outcomes.setdefault(report.nodeid, "passed")

    def pytest_sessionfinish(self) -> None:
        """Write the record, whole or not at all."""
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps(self._outcomes, indent=1, sort_keys=True), encoding="utf-8")
        partial.replace(self._file)


OUTCOMES = pytest.StashKey[OutcomeRecord]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option by which suites keep outcomes."""
    parser.addoption("--record-outcomes", type=Path, help="write test outcomes to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    """Start the record."""
    # A helper process of a run side by side hears its own tests only; the one that started it,
    # which hears of all, keeps the record.
    helper = hasattr(config, "workerinput")
    record = OutcomeRecord(None if helper else config.getoption("--record-outcomes"))
    config.stash[OUTCOMES] = record
    config.pluginmanager.register(record, "outcome-record")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail, with the remedy, when a stock program that the test drives is absent."""
    wanted = {name for mark in item.iter_markers("needs_program") for name in mark.args}
    absent = sorted(name for name in wanted if system_packages.find_program(name) is None)
    if not absent:
        return
    if system_packages.left_out_on_purpose():
        pytest.skip(f"without system packages, on purpose: {', '.join(absent)}")
    pytest.fail(
        f"{', '.join(absent)} not found; {system_packages.remedy(system_packages.PACKAGES)}",
        pytrace=False,
    )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name what was left out, so that a green run does not claim more than it did."""
    left_out = config.stash[OUTCOMES].left_out
    if left_out:
        terminalreporter.section("not run")
        for test_id, reason in sorted(left_out.items()):
            terminalreporter.line(f"{test_id}: {reason}")
