"""The words of `mosquitto.conf` that have no meaning here, each with the reason."""

from collections.abc import Mapping
from typing import Final

_OWN_LOGS: Final = "logs go to standard error; see the key log"
_DURABLE: Final = "nothing is saved at intervals here"
_TUNED: Final = "the broker tunes this itself"
_NOT_YET: Final = "this version has no such option"
_CIPHERS: Final = "ciphers and curves are not chosen by hand"

# Left out without harm: the broker is neither more open nor less careful without them.
IGNORED: Final[Mapping[str, str]] = {
    "allow_duplicate_messages": "overlapping subscriptions always deliver one copy",
    "allow_zero_length_clientid": "empty client ids are always given one",
    "auth_plugin_deny_special_chars": "names with + or # never stand for %u or %c in rules",
    "auto_id_prefix": "given client ids begin with qmq-",
    "autosave_interval": _DURABLE,
    "autosave_on_changes": _DURABLE,
    "capath": "name the certificates in one file with cafile",
    "ciphers": _CIPHERS,
    "ciphers_tls1.3": _CIPHERS,
    "connection_messages": _OWN_LOGS,
    "dhparamfile": _CIPHERS,
    "disable_client_cert_date_checks": "certificates count within their dates only",
    "enable_control_api": _NOT_YET,
    "http_dir": "the admin address serves the live page",
    "listener_auto_id_prefix": "given client ids begin with qmq-",
    "log_dest": _OWN_LOGS,
    "log_facility": _OWN_LOGS,
    "log_timestamp": _OWN_LOGS,
    "log_timestamp_format": _OWN_LOGS,
    "max_inflight_bytes": _TUNED,
    "max_topic_alias_broker": _TUNED,
    "memory_limit": "every bound has a name of its own; see the key limits",
    "message_size_limit": "use max_packet_size, which counts the whole packet",
    "packet_buffer_size": _TUNED,
    "persistence_file": "the data directory holds many files",
    "pid_file": "the ready line tells the process id",
    "queue_qos0_messages": "messages of QoS 0 never wait for absent clients",
    "retain_expiry_interval": _NOT_YET,
    "retry_interval": "messages are sent again when their client is back, as MQTT says",
    "set_tcp_nodelay": "it is always set",
    "socket_domain": "the address says it",
    "tls_engine": _CIPHERS,
    "tls_engine_kpass_sha1": _CIPHERS,
    "tls_keyform": "keys are PEM files",
    "upgrade_outgoing_qos": "MQTT forbids it",
    "user": "start the program as the user it shall run as",
    "websockets_headers_size": _TUNED,
    "websockets_log_level": _OWN_LOGS,
}

# Following the file without these would let in, or let through, what it keeps out.
REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "accept_protocol_versions": (
        "all three versions are always served",
        "remove the line if that is acceptable",
    ),
    "auth_plugin": (
        "plugins of Mosquitto do not run here",
        "use password_file and acl_file, or hooks in Python",
    ),
    "bind_interface": (
        "listeners are bound to addresses, not to interfaces",
        "write the address of that interface in the listener line",
    ),
    "check_retain_source": (
        "the publisher's right is checked when it publishes, never again later",
        "remove the line if that is acceptable",
    ),
    "clientid_prefixes": (
        "client ids are not bound to prefixes here",
        "use use_username_as_clientid, or patterns with %c in the acl_file",
    ),
    "max_qos": ("every QoS is always served", "remove the line if that is acceptable"),
    "maximum_qos": ("every QoS is always served", "remove the line if that is acceptable"),
    "mount_point": (
        "topics are never mapped by listener",
        "give each group of clients rules of their own in the acl_file",
    ),
    "per_listener_settings": (
        "users and rules are the same for every listener here: settings per listener would open"
        " one listener with the users of another",
        "remove the line and join the files, or run a broker per listener",
    ),
    "plugin": (
        "plugins of Mosquitto do not run here",
        "use password_file and acl_file, or hooks in Python",
    ),
    "global_plugin": (
        "plugins of Mosquitto do not run here",
        "use password_file and acl_file, or hooks in Python",
    ),
    "proxy_protocol_v2_require_tls": (
        "whether the proxy's clients use TLS is not asked here",
        "let the proxy turn them away, then remove the line",
    ),
    "psk_file": ("pre-shared keys are not spoken", "use certificates"),
    "psk_hint": ("pre-shared keys are not spoken", "use certificates"),
    "retain_available": (
        "retained messages are always kept",
        "remove the line if that is acceptable",
    ),
    "use_subject_as_username": (
        "the whole subject of a certificate never becomes a user name",
        "use use_identity_as_username",
    ),
}

BRIDGE_WORDS: Final = frozenset(
    {
        "address",
        "addresses",
        "clientid",
        "cleansession",
        "connection",
        "idle_timeout",
        "keepalive_interval",
        "local_cleansession",
        "local_clientid",
        "local_password",
        "local_username",
        "notification_topic",
        "notifications",
        "notifications_local_only",
        "password",
        "remote_clientid",
        "remote_password",
        "remote_username",
        "restart_timeout",
        "round_robin",
        "start_type",
        "threshold",
        "topic",
        "try_private",
        "username",
    }
)


def is_plugin_word(word: str) -> bool:
    """Tell whether a word belongs to a plugin, whose own line is refused."""
    return word.startswith(("auth_opt_", "plugin_"))


def is_bridge_word(word: str) -> bool:
    """Tell whether a word belongs to a bridge."""
    return word in BRIDGE_WORDS or word.startswith("bridge_")
