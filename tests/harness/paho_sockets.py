"""Closing what paho-mqtt leaves to the garbage collector.

A paho client (aiomqtt has one inside) closes a pair of sockets when it is destroyed. In a cycle of
references the collector may destroy the sockets first, and they complain that nobody closed them.
"""

import gc

import paho.mqtt.client as paho


def close_paho_sockets() -> None:
    """Close the sockets of every paho client that is still in memory; none may be in use."""
    for one in gc.get_objects():
        if type(one) is paho.Client:
            one.__del__()
