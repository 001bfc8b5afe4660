"""The admin application over a pretended transport: what it answers, and to whom."""

import asyncio

import httpx
import pytest

from quantumqtt.api.app import admin_app
from quantumqtt.api.view import statistics_document
from quantumqtt.node import NodeState
from quantumqtt.operations import JobReport
from tests.unit.api.broker_stand_in import FACTS, BrokerStandIn

PATHS = ["/", "/metrics", "/livez", "/readyz", "/v1/statistics"]


def ask(
    path: str,
    *,
    broker: BrokerStandIn | None = None,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    host_names: tuple[str, ...] = (),
) -> httpx.Response:
    app = admin_app(broker or BrokerStandIn(), FACTS, host_names=host_names)

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(send())


@pytest.mark.parametrize("path", PATHS)
def test_every_path_answers_with_the_security_headers(path: str) -> None:
    reply = ask(path)
    assert reply.status_code == 200
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_here_can_be_changed(path: str, method: str) -> None:
    assert ask(path, method=method).status_code == 405


def test_an_unknown_path_is_not_found_and_still_guarded() -> None:
    reply = ask("/v1/secrets")
    assert reply.status_code == 404
    assert "content-security-policy" in reply.headers


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8080", "LOCALHOST.", "127.0.0.1:8080", "[::1]:8080", "10.0.0.7"],
)
def test_addresses_and_localhost_are_served(host: str) -> None:
    assert ask("/livez", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[::1", "a b", "@"]
)
@pytest.mark.parametrize("path", PATHS)
def test_foreign_host_names_are_refused(path: str, host: str) -> None:
    reply = ask(path, headers={"host": host})
    assert reply.status_code == 421
    assert "admin_hosts" in reply.json()["hint"]


def test_listed_host_names_are_served() -> None:
    reply = ask("/livez", headers={"host": "Broker.Example:80"}, host_names=("broker.example",))
    assert reply.status_code == 200


@pytest.mark.parametrize(
    ("state", "failure", "live", "ready"),
    [
        (NodeState.STARTING, None, 200, 503),
        (NodeState.READY, None, 200, 200),
        (NodeState.DRAINING, None, 200, 503),
        (NodeState.FAILED, "shard 1 panicked", 503, 503),
        (NodeState.STOPPED, None, 503, 503),
    ],
)
def test_health_follows_the_life_of_the_broker_and_says_why(
    state: NodeState, failure: str | None, live: int, ready: int
) -> None:
    broker = BrokerStandIn(state=state, failure=failure)
    livez, readyz = ask("/livez", broker=broker), ask("/readyz", broker=broker)
    assert (livez.status_code, readyz.status_code) == (live, ready)
    assert livez.json()["alive"] is (live == 200)
    assert readyz.json()["ready"] is (ready == 200)
    if ready != 200:
        assert f"the broker is {state}" in readyz.json()["reasons"]
    if failure is not None:
        assert failure in livez.json()["reasons"]
        assert failure in readyz.json()["reasons"]


def test_statistics_are_the_snapshot() -> None:
    document = ask("/v1/statistics").json()
    assert document["state"] == "ready"
    assert document["durability"] == "memory"
    assert document["listeners"] == [
        {"name": "tcp-1", "url": "tcp://127.0.0.1:1883", "allow_anonymous": True}
    ]
    counters = document["statistics"]
    assert counters["publishes_received_total"] == [100, 20, 3]
    assert counters["drops_total"] == {"slow_subscriber": 4, "packet_too_large": 1}
    assert counters["uptime_ms"] == 61_500


def test_jobs_beside_the_broker_are_told() -> None:
    assert ask("/v1/statistics").json()["jobs"] == {}
    job = JobReport(name="land", state="pausing", lag=4, restarts_total=2, why="no disk")
    told = statistics_document(BrokerStandIn(), FACTS, lambda: [job])["jobs"]
    assert isinstance(told, dict)
    assert told["land"]["state"] == "pausing"
    assert (told["land"]["lag"], told["land"]["restarts_total"]) == (4, 2)
    assert told["land"]["why"] == "no disk"


def test_statistics_of_a_broker_that_is_gone_are_null() -> None:
    document = ask(
        "/v1/statistics", broker=BrokerStandIn(state=NodeState.STOPPED, snapshot=None)
    ).json()
    assert document["statistics"] is None
    assert document["state"] == "stopped"


def test_metrics_speak_the_format_that_is_asked_for() -> None:
    plain = ask("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    modern = ask("/metrics", headers=accept)
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert modern.text.endswith("# EOF\n")


def test_the_digest_of_the_state_is_told_with_its_index() -> None:
    reply = ask("/v1/digest")
    assert reply.json() == {"index": 12, "digest": "ab" * 16}
    assert ask("/v1/digest", broker=BrokerStandIn(snapshot=None)).status_code == 503


def test_a_session_is_found_by_any_client_id_and_its_absence_is_404() -> None:
    reply = ask("/v1/sessions/a%2Fb%20%C3%BC")
    assert reply.json() == {"client_id": "a/b ü"}
    absent = ask("/v1/sessions/nobody")
    assert absent.status_code == 404
    assert absent.json() == {"problem": "no session is stored for client id 'nobody'"}
    stopped = BrokerStandIn(snapshot=None)
    assert ask("/v1/sessions/nobody", broker=stopped).status_code == 503


@pytest.mark.parametrize("path", ["/v1/digest", "/v1/sessions/nobody"])
def test_the_state_is_shown_on_loopback_only(path: str) -> None:
    app = admin_app(BrokerStandIn(), FACTS, explains_rules=False)

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    assert asyncio.run(send()).status_code == 403


def test_what_is_suspicious_about_storage_is_a_detail_of_readiness() -> None:
    reply = ask("/readyz", broker=BrokerStandIn(storage_findings=("tmpfs is memory",)))
    assert reply.status_code == 200
    assert reply.json() == {"ready": True, "reasons": [], "details": ["storage: tmpfs is memory"]}
