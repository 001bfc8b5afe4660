"""A replay brings what its reader may read at that moment, and says nothing of the rest."""

from pathlib import Path

import pytest

from tests.authorisation.conftest import VERSIONS, Files, StartBroker
from tests.harness.packets import Version

RULES = """\
user ada
topic readwrite #
user bob
topic read open/#
topic deny open/closed/#
"""
REFUSED = {Version.V311: 0x80, Version.V5: 0x87}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])
def test_rules_hold_for_the_inner_filter_and_for_every_topic(
    files: Files, start: StartBroker, tmp_path: Path, version: Version, *, clean: bool
) -> None:
    files.write_users("ada", "bob")
    files.write_rules(RULES)
    broker = start(data=tmp_path / "data")
    ada = broker.client("a", "ada")
    topics = ["open/1", "secret/1", "open/closed/1", "open/2"]
    for topic in topics:
        ada.publish(topic, topic.encode(), qos=1)
    bob = broker.client("b", "bob", version=version, clean=clean)
    assert bob.subscribe("$replay/earliest/secret/1") == (REFUSED[version],)
    broker.wait_event("access_denied", reason="subscribe", topic="secret/1", user_name="bob")
    assert bob.subscribe("$replay/earliest/open/#")[0] < 2
    assert [bob.take().topic for _ in range(2)] == ["open/1", "open/2"]
    # Where the log begins and ends is told to nobody who may not read there.
    assert bob.subscribe("$replay/offset:99/secret/1") == (REFUSED[version],)
    files.write_rules(RULES.replace("deny open/closed/#", "deny open/1"))
    broker.reload()
    bob.unsubscribe("$replay/earliest/open/#")
    bob.subscribe("$replay/earliest/open/#")
    assert [bob.take().topic for _ in range(2)] == ["open/closed/1", "open/2"]
    bob.ping()
