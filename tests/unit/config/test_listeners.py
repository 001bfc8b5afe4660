"""Listener tables: what they may say, where they take certificates from, how slips are told."""

import json
from pathlib import Path

import pytest

from quantumqtt.config import FlagLayer, Settings, load_settings, settings_from, split_error
from quantumqtt.errors import ConfigError


def settings(**keys: object) -> Settings:
    return settings_from([FlagLayer(keys)])


def toml(folder: Path, text: str) -> Path:
    file = folder / "broker.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_tables_take_the_place_of_the_default_and_stand_beside_a_list() -> None:
    table = {"url": "unix:///run/mqtt.sock"}
    assert [one.url.url for one in settings(listener=[table]).listeners] == [table["url"]]
    both = settings(listener=[table], listen=["tcp://127.0.0.1:1"])
    assert [one.url.url for one in both.listeners] == ["tcp://127.0.0.1:1", table["url"]]
    assert [one.url.port for one in settings().listeners] == [1883]


@pytest.mark.hardening("listener-options")
def test_certificates_are_its_own_or_shared_and_never_mixed() -> None:
    found = settings(
        tls={"certificate": "shared.pem", "key": "shared.key", "client_ca": "shared-ca.pem"},
        listen=["tls://127.0.0.1:1"],
        listener=[
            {"url": "tls://127.0.0.1:2", "certificate": "own.pem", "key": "own.key"},
            {"url": "wss://127.0.0.1:3", "connections_max": 5},
            {"url": "tcp://127.0.0.1:4"},
        ],
    )
    certificates = [found.tls_of(one) for one in found.listeners]
    shown = [
        None if tls is None else (str(tls.certificate), str(tls.client_ca)) for tls in certificates
    ]
    shared = ("shared.pem", "shared-ca.pem")
    assert shown == [shared, ("own.pem", "None"), shared, None]


def test_doors_are_decided_by_their_own_words_first() -> None:
    found = settings(
        allow_anonymous=True,
        listener=[
            {"url": "tcp://0.0.0.0:1", "allow_anonymous": False},
            {"url": "tcp://0.0.0.0:2", "allow_plaintext_passwords": True},
            {"url": "unix:///run/x"},
        ],
    )
    doors = [
        (found.anonymous_allowed(one), found.passwords_allowed(one)) for one in found.listeners
    ]
    assert doors == [(False, False), (True, True), (True, True)]


def test_slip_in_the_second_table_is_told_with_its_line(tmp_path: Path) -> None:
    file = toml(
        tmp_path,
        '[[listener]]\nurl = "tcp://127.0.0.1:1"\n\n[[listener]]\nurl = "tcp://127.0.0.1:2"\n'
        'origins = ["https://a.example"]\npacket_bytes_max = 1\n',
    )
    with pytest.raises(ConfigError) as caught:
        load_settings(file=file, read_environment=False)
    ((said, remedy),) = split_error(caught.value)
    assert said.startswith(f"{file}:7: listener.packet_bytes_max = 1: must be at least 1024")
    assert remedy
    file = toml(tmp_path, file.read_text("utf-8").replace("packet_bytes_max = 1\n", ""))
    with pytest.raises(ConfigError) as caught:
        load_settings(file=file, read_environment=False)
    ((said, _),) = split_error(caught.value)
    assert said == f"{file}:6: listener.origins: tcp://127.0.0.1:2 is no WebSocket"


def test_variable_holds_tables_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTUMQTT_LISTENER", json.dumps([{"url": "ws://127.0.0.1:0/x"}]))
    assert load_settings().listeners[0].url.path == "/x"
    monkeypatch.setenv("QUANTUMQTT_LISTENER", "[{")
    with pytest.raises(ConfigError, match=r"QUANTUMQTT_LISTENER: listener = .*cannot be decoded"):
        load_settings()


@pytest.mark.parametrize(
    ("table", "complaint", "remedy"),
    [
        ({"url": "tls://h:1"}, "certificate: tls://h:1 needs a certificate", "--cert FILE"),
        ({"url": "tls://h:1", "certificate": "c"}, "key: tls://h:1 needs the key", "--key FILE"),
        ({"url": "tcp://h:1", "key": "k"}, "key: tcp://h:1 is not encrypted", "write tls://"),
        ({"url": "ws://h:1", "crl": "k"}, "crl: ws://h:1/mqtt is not encrypted", "write wss://"),
        (
            {"url": "tls://h:1", "certificate": "c", "key": "k", "crl": "r"},
            "crl: tls://h:1 cannot judge certificates",
            "client_ca = FILE",
        ),
        (
            {
                "url": "tls://h:1",
                "certificate": "c",
                "key": "k",
                "require_client_certificate": True,
            },
            "require_client_certificate: tls://h:1 cannot judge",
            "client_ca = FILE",
        ),
        ({"url": "tcp://h:1", "socket_mode": "0600"}, "is no Unix socket", "remove the key"),
        ({"url": "unix:///x", "socket_mode": "rw"}, "is no file mode", '"0660"'),
        ({"url": "unix:///x", "socket_mode": 0o1777}, "is no file mode", '"0660"'),
        ({"url": "tcp://h:1", "proxy_protocol": "v1"}, "anybody can write", "proxy_trusted"),
        ({"url": "tcp://h:1", "proxy_trusted": ["10.0.0.0/8"]}, "No PROXY".lower(), '"any"'),
        (
            {"url": "tcp://h:1", "proxy_protocol": "any", "proxy_trusted": ["10.0.0.1/8"]},
            "is no network",
            "10.0.0.0/8",
        ),
        ({"url": "ws://h:1", "origins": ["https://a.example/x"]}, "is no origin", "no path"),
        ({"url": "tcp://h:1", "packet_bytes_max": 32 << 20}, "above limits.packet", "raise"),
        ({"url": "tcp://h:1", "colour": "red"}, "unknown key", ""),
        ({}, "is required", "add the key"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_remedy(
    table: dict[str, object], complaint: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(listener=[table])
    said = list(split_error(caught.value))
    assert any(complaint in line.lower() or complaint in line for line, _ in said), said
    assert any(remedy in (hint or "") for _, hint in said), said


@pytest.mark.requirement("SEC-02")
def test_production_takes_what_nobody_can_listen_to() -> None:
    tls = {"certificate": "c", "key": "k"}
    good = settings(
        profile="production",
        data="d",
        tls=tls,
        listen=["tls://0.0.0.0:1", "wss://0.0.0.0:2", "unix:///run/mqtt.sock"],
    )
    assert not any(good.anonymous_allowed(one) for one in good.listeners)
    for listener, complaint in (
        ({"url": "ws://127.0.0.1:1"}, "is plaintext"),
        ({"url": "tls://h:1", **tls, "tls_min_version": "1.2"}, "TLS 1.3 only"),
        ({"url": "tls://h:1", **tls, "allow_anonymous": True}, "lets nobody in"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            settings(profile="production", data="d", listener=[listener])
    with pytest.raises(ConfigError, match=r"tls\.min_version|tls_min_version"):
        settings(
            profile="production", data="d", tls={**tls, "min_version": "1.2"}, listen=["tls://h:1"]
        )


def test_places_listed_twice_are_told() -> None:
    with pytest.raises(ConfigError, match="unix:///x is listed twice"):
        settings(listen=["unix:///x"], listener=[{"url": "unix:///x"}])


def test_certificates_are_all_of_a_listener_that_a_reload_takes_over() -> None:
    table = {"url": "tls://h:1", "certificate": "c", "key": "k"}
    before, renewed, moved = (
        settings(listener=[one]).listener[0]
        for one in (table, {**table, "key": "k2"}, {**table, "connections_max": 5})
    )
    assert before.without_certificates() == renewed.without_certificates()
    assert before.without_certificates() != moved.without_certificates()
