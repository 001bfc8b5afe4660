"""The admin server: a thread of its own, started and ended in order. Sockets are its business."""

import threading

import httpx
import pytest

from quantumqtt.api import open_admin
from quantumqtt.api.server import AdminServer
from quantumqtt.config import Address
from quantumqtt.errors import ConfigError, TransportError
from tests.harness.ports import taken_port
from tests.unit.api.broker_stand_in import FACTS, BrokerStandIn


def admin_on(port: int, host: str = "127.0.0.1") -> AdminServer:
    return open_admin(BrokerStandIn(), FACTS, address=Address("http", host, port))


def admin_threads() -> int:
    return sum(thread.name == "quantumqtt-admin" for thread in threading.enumerate())


def test_it_serves_when_start_returns_and_is_gone_when_stop_returns() -> None:
    admin = admin_on(0)
    admin.start()
    try:
        assert admin.address.port != 0
        assert httpx.get(f"{admin.address.url}/livez", trust_env=False).json()["alive"] is True
        assert admin_threads() == 1
    finally:
        admin.stop()
    assert admin_threads() == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{admin.address.url}/livez", trust_env=False)
    admin.stop()


def test_a_browser_that_stays_connected_does_not_hold_up_the_end() -> None:
    admin = admin_on(0)
    admin.start()
    with httpx.Client(base_url=admin.address.url, trust_env=False) as browser:
        assert browser.get("/livez").status_code == 200
        admin.stop()
    assert admin_threads() == 0


def test_two_servers_live_in_one_process() -> None:
    first, second = admin_on(0), admin_on(0)
    first.start()
    second.start()
    try:
        assert first.address.port != second.address.port
        assert httpx.get(f"{second.address.url}/readyz", trust_env=False).status_code == 200
    finally:
        first.stop()
        second.stop()


def test_a_taken_port_is_named_with_its_remedy() -> None:
    with taken_port() as port:
        admin = admin_on(port)
        with pytest.raises(TransportError, match=f"cannot serve http://127.0.0.1:{port}") as caught:
            admin.start()
    assert "--admin" in str(caught.value.hint)
    assert admin_threads() == 0


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(TransportError, match=r"cannot serve http://192\.0\.2\.1:1") as caught:
        admin_on(1, host="192.0.2.1").start()
    assert caught.value.hint == "this machine has no such address"


def test_a_name_that_does_not_resolve_is_named() -> None:
    with pytest.raises(TransportError, match=r"cannot serve http://no-such-host\.invalid:1"):
        admin_on(1, host="no-such-host.invalid").start()


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "prometheus_client"])
def test_a_missing_extra_is_named_with_the_command(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("quantumqtt.api.")]:
        monkeypatch.delitem(sys.modules, name)
    # None in sys.modules is how Python spells "cannot be imported".
    for name in [*(n for n in sys.modules if n.startswith(f"{missing}.")), missing]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=f"needs {missing}") as caught:
        open_admin(BrokerStandIn(), FACTS, address=Address("http", "127.0.0.1", 0))
    assert "pip install 'quantumqtt[server]'" in str(caught.value.hint)
