"""The state machine on a bench: commands, effects and the hand crank that turns one into the other.

Tests and simulations drive the very code a broker runs, without sockets, threads or a clock.
"""

from quantumqtt.simulation.crank import Crank, Entry, SessionView, decode_entry, encode_entry

__all__ = ["Crank", "Entry", "SessionView", "decode_entry", "encode_entry"]
