"""Settings of a node: what they are, where they come from, what is wrong with them."""

from quantumqtt.config.limits import Limits
from quantumqtt.config.listen import Address, parse_admin, parse_listen
from quantumqtt.config.listeners import ListenerSettings, TlsSettings
from quantumqtt.config.mosquitto import MosquittoLayer, read_mosquitto_conf
from quantumqtt.config.problems import split_error
from quantumqtt.config.settings import (
    Durability,
    LogFormat,
    LogLevel,
    LogSettings,
    Profile,
    Settings,
)
from quantumqtt.config.sources import FlagLayer, load_settings, settings_from, suspicious_variables

__all__ = [
    "Address",
    "Durability",
    "FlagLayer",
    "Limits",
    "ListenerSettings",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "MosquittoLayer",
    "Profile",
    "Settings",
    "TlsSettings",
    "load_settings",
    "parse_admin",
    "parse_listen",
    "read_mosquitto_conf",
    "settings_from",
    "split_error",
    "suspicious_variables",
]
