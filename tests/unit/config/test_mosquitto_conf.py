"""Reading `mosquitto.conf`."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quantumqtt.config import load_settings, read_mosquitto_conf, split_error
from quantumqtt.config.mosquitto_words import IGNORED, REFUSED
from quantumqtt.errors import ConfigError
from tests.harness.complaints import complaints


def conf(folder: Path, text: str) -> Path:
    file = folder / "mosquitto.conf"
    file.write_text(text, encoding="utf-8")
    return file


def test_options_with_a_meaning_become_settings(tmp_path: Path) -> None:
    text = """\
# a usual one
listener 1884 127.0.0.1
listener 1885
allow_anonymous true
password_file /etc/mosquitto/passwd
acl_file /etc/mosquitto/acl
max_packet_size 100000
max_queued_messages 0
max_keepalive 600
persistent_client_expiration 2d
persistence true
persistence_location /var/lib/mosquitto/
use_username_as_clientid true
log_type all
sys_interval 30
"""
    found = load_settings(mosquitto_conf=conf(tmp_path, text), read_environment=False)
    assert [address.url for address in found.listen] == [
        "tcp://127.0.0.1:1884",
        "tcp://0.0.0.0:1885",
    ]
    assert found.allow_anonymous is True
    assert found.password_file == Path("/etc/mosquitto/passwd")
    assert found.acl_file == Path("/etc/mosquitto/acl")
    assert found.data == Path("/var/lib/mosquitto")
    assert found.client_id_rule == "user_name"
    assert found.log.level == "debug"
    assert found.sys_interval_s == 30
    limits = found.limits
    assert (limits.packet_bytes_max, limits.keep_alive_s_max) == (100_000, 600)
    assert (limits.offline_count_max, limits.session_expiry_s_max) == (10**9, 172_800)


def test_defaults_are_those_of_mosquitto(tmp_path: Path) -> None:
    local = load_settings(mosquitto_conf=conf(tmp_path, "\n"), read_environment=False)
    assert [address.url for address in local.listen] == ["tcp://127.0.0.1:1883"]
    assert local.anonymous_allowed(local.listen[0])
    listening = load_settings(mosquitto_conf=conf(tmp_path, "port 1900\n"), read_environment=False)
    assert [address.url for address in listening.listen] == ["tcp://0.0.0.0:1900"]
    assert not listening.anonymous_allowed(listening.listen[0])
    assert listening.passwords_allowed(listening.listen[0])
    assert listening.limits.receive_maximum == 20


def test_persistence_decides_whether_there_is_a_log(tmp_path: Path) -> None:
    default = Path("data")
    for text, durability, data in (
        ("\n", "memory", None),
        ("persistence false\n", "memory", None),
        ("persistence true\n", "strict", default),
        ("persistence true\npersistence_location /var/lib/m/\n", "strict", Path("/var/lib/m")),
    ):
        found = load_settings(
            mosquitto_conf=conf(tmp_path, text), read_environment=False, data_default=default
        )
        assert (found.durability, found.data) == (durability, data), text


def test_flags_are_stronger_than_the_file(tmp_path: Path) -> None:
    found = load_settings(
        mosquitto_conf=conf(tmp_path, "port 1900\n"),
        flags={"listen": ("tcp://127.0.0.1:0",)},
        read_environment=False,
    )
    assert [address.url for address in found.listen] == ["tcp://127.0.0.1:0"]


def test_what_is_left_out_is_told_with_its_reason(tmp_path: Path) -> None:
    file = conf(
        tmp_path,
        "pid_file /run/x.pid\nautosave_interval 30\nconnection other\naddress example.org\n"
        "topic # both\nbridge_cafile x\nmax_inflight_messages 5000\n",
    )
    ignored = read_mosquitto_conf(file).ignored
    assert [line.partition(": ")[0] for line in ignored] == [
        f"{file}:{number}" for number in (1, 2, 3, 4, 5, 6, 7)
    ]
    assert "no bridges" in ignored[3]


def test_what_a_listener_says_of_itself_is_its_own(tmp_path: Path) -> None:
    text = """\
listener 1884
listener_allow_anonymous true
enable_proxy_protocol 2
listener 9001
protocol websockets
websockets_origin https://a.example
websockets_origin https://b.example
"""
    found = load_settings(mosquitto_conf=conf(tmp_path, text), read_environment=False)
    tcp, web = found.listener
    assert (tcp.allow_anonymous, web.allow_anonymous) == (True, None)
    assert (tcp.proxy_protocol, web.proxy_protocol) == ("v2", "off")
    assert web.origins == ("https://a.example", "https://b.example")


def test_a_listener_without_port_is_a_unix_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "listener 0 mqtt.sock\nlistener 0 /run/mqtt.sock\nlistener 0 127.0.0.1\n"
    found = load_settings(mosquitto_conf=conf(tmp_path, text), read_environment=False)
    assert [address.url for address in found.listen] == [
        f"unix://{tmp_path}/mqtt.sock",
        "unix:///run/mqtt.sock",
        "tcp://127.0.0.1:0",
    ]


def test_connections_at_a_time_are_bounded_as_the_file_says(tmp_path: Path) -> None:
    file = conf(tmp_path, "global_max_connections 10\n")
    found = load_settings(mosquitto_conf=file, read_environment=False)
    assert found.limits.connections_max == 10


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("per_listener_settings true", "the same for every listener"),
        ("bind_interface eth0", "not to interfaces"),
        ("maximum_qos 1", "every QoS is always served"),
        ("listener_allow_anonymous true", "stands before any listener"),
        ("plugin /usr/lib/x.so", "plugins of Mosquitto do not run here"),
        ("plugin_opt_file x", "plugins of Mosquitto do not run here"),
        ("psk_file x", "pre-shared keys"),
        ("allow_anonymos true", "unknown to Mosquitto and to us"),
        ("allow_anonymous yes", "neither true nor false"),
        ("listener x", "is no port"),
        ("port 99999", "is no port"),
        ("certfile x", "stands before any listener"),
        ("persistent_client_expiration 5", "is no time"),
        ("max_keepalive much", "is no number"),
        ("acl_file", "names no file"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_line(
    tmp_path: Path, line: str, complaint: str
) -> None:
    file = conf(tmp_path, f"# x\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        read_mosquitto_conf(file)
    ((said, remedy),) = split_error(caught.value)
    assert said.startswith(f"{file}:2: {line.split()[0]}: ")
    assert complaint in said
    assert remedy


def test_per_listener_settings_false_is_nothing(tmp_path: Path) -> None:
    assert not read_mosquitto_conf(conf(tmp_path, "per_listener_settings false\n")).ignored


def test_included_files_are_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "b.conf").write_text("allow_anonymous true\n", encoding="utf-8")
    (folder / "a.conf").write_text(
        "listener 1 127.0.0.1\nallow_anonymous false\n", encoding="utf-8"
    )
    (folder / "c.txt").write_text("nonsense\n", encoding="utf-8")
    found = read_mosquitto_conf(conf(tmp_path, f"include_dir {folder}\n"))
    assert found.values["allow_anonymous"] is True
    assert found.origin_of(("allow_anonymous",)) == f"{folder / 'b.conf'}:1"


def test_problem_found_later_still_names_its_line(tmp_path: Path) -> None:
    file = conf(tmp_path, "listener 1 127.0.0.1\nmax_packet_size 7\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(mosquitto_conf=file, read_environment=False)
    assert f"{file}:2: limits.packet_bytes_max = 7" in str(caught.value)


def test_encrypted_listener_becomes_a_table(tmp_path: Path) -> None:
    text = "listener 8883\ncafile ca\ncertfile crt\nkeyfile key\nrequire_certificate true\n"
    file = conf(tmp_path, text + "listener 9001\nprotocol websockets\nmax_connections 10\n")
    found = read_mosquitto_conf(file)
    first = {
        "url": "tls://0.0.0.0:8883",
        "client_ca": "ca",
        "certificate": "crt",
        "key": "key",
        "require_client_certificate": True,
        "tls_min_version": "1.2",
        "certificate_user": "off",
    }
    second = {"url": "ws://0.0.0.0:9001/mqtt", "connections_max": 10}
    assert found.values["listener"] == (first, second)
    assert "listen" not in found.values
    assert found.origin_of(("listener", "0", "key")) == f"{file}:4"
    both = load_settings(mosquitto_conf=file, read_environment=False)
    assert [one.url.url for one in both.listeners] == [
        "tls://0.0.0.0:8883",
        "ws://0.0.0.0:9001/mqtt",
    ]
    assert not both.anonymous_allowed(both.listeners[0])


def test_tls_options_mean_what_they_mean_at_mosquitto(tmp_path: Path) -> None:
    certificates = "certfile crt\nkeyfile key\ncafile ca\ncrlfile crl\n"
    text = (
        f"listener 1\n{certificates}require_certificate true\nuse_identity_as_username true\n"
        f"tls_version tlsv1.3\nlistener 2\n{certificates}listener 3\ncafile ca\n"
        "listener 0 /run/mqtt.sock\nlistener 4 ::1\nprotocol websockets\ncertfile c\nkeyfile k\n"
    )
    found = load_settings(mosquitto_conf=conf(tmp_path, text), read_environment=False)
    by_url = {one.url.url: found.tls_of(one) for one in found.listeners}
    strict, asking_nobody = by_url["tls://0.0.0.0:1"], by_url["tls://0.0.0.0:2"]
    assert strict is not None
    assert (strict.certificate_user, strict.min_version) == ("cn", "1.3")
    assert (strict.client_ca, strict.crl) == (Path("ca"), Path("crl"))
    assert asking_nobody is not None
    assert (asking_nobody.client_ca, asking_nobody.crl) == (None, None)
    assert by_url["tcp://0.0.0.0:3"] is None, "without a certificate it is not encrypted"
    assert by_url["unix:///run/mqtt.sock"] is None
    assert by_url["wss://[::1]:4/mqtt"] is not None


def test_no_word_is_both_ignored_and_refused() -> None:
    assert not IGNORED.keys() & REFUSED.keys()
    assert all(reason and remedy for reason, remedy in REFUSED.values())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=30), max_size=10))
def test_any_text_is_settings_or_a_named_complaint(tmp_path: Path, lines: list[str]) -> None:
    file = tmp_path / "any.conf"
    file.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    found = complaints(lambda: read_mosquitto_conf(file))
    assert all(str(tmp_path) in line and remedy for line, remedy in found)
