"""Brokers with users and rules that a test writes down."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from quantumqtt.config import FlagLayer, settings_from
from quantumqtt.policy import Hooks
from quantumqtt.policy.passwords import hash_password
from tests.harness.live_broker import LiveBroker
from tests.harness.packets import Version

VERSIONS = (Version.V311, Version.V5)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known that says which clause of the standard a test is about."""
    config.addinivalue_line("markers", "clause(id, ...): the clauses of the OASIS standard shown")


class Files:
    """The password file and the rule file of one broker."""

    def __init__(self, folder: Path) -> None:
        self.passwords = folder / "passwords"
        self.rules = folder / "rules"

    def write_users(self, *names: str) -> None:
        """Let these in, each with its name as its password."""
        lines = [f"{name}:{hash_password(name.encode(), 'sha512')}\n" for name in names]
        self.passwords.write_text("".join(lines), encoding="utf-8")

    def write_rules(self, text: str) -> None:
        """Put these rules in force at the next (re)load."""
        self.rules.write_text(text, encoding="utf-8")


StartBroker = Callable[..., LiveBroker]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Name files that do not exist yet."""
    return Files(tmp_path)


@pytest.fixture(params=(1, 2), ids=lambda n: f"{n}-shard")
def shards(request: pytest.FixtureRequest) -> int:
    """Run the test with one worker and with several."""
    assert isinstance(request.param, int)
    return request.param


@pytest.fixture
def start(files: Files, shards: int) -> Iterator[StartBroker]:
    """Start a broker with whatever files there are: `start(denied_publish="answer")`."""
    with ExitStack() as running:

        def start_one(*, hooks: Hooks | None = None, **keys: object) -> LiveBroker:
            asked: dict[str, object] = {
                "listen": ("tcp://127.0.0.1:0",),
                "shards": shards,
                "allow_anonymous": True,
                **keys,
            }
            if files.passwords.exists():
                asked["password_file"] = files.passwords
            if files.rules.exists():
                asked["acl_file"] = files.rules
            settings = settings_from([FlagLayer(asked, spoken_by_caller=True)])
            return running.enter_context(LiveBroker(settings, hooks=hooks))

        yield start_one
