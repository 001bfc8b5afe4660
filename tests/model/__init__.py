"""The reference model: what MQTT promises about sessions, as plain Python.

Read it in this order: `matching.py` which filter matches which topic · `message.py` what is sent
and how long it lives · `session.py` one client: packet ids, what is in flight, what waits ·
`share.py` who is next in a share group · `broker.py` all of them: connecting, publishing,
subscribing, retained messages, wills, time.

It is written to be understood and does everything the slow way. It keeps no caches, has no indexes
and reads no clock. `versus.py` drives it beside the native machine and compares; where the two
differ, one of them is wrong, and the OASIS standards say which. Clauses are named as in the
standards: `[MQTT-4.6.0-1]`; X-nn names a resolution of this project where the standards leave a
choice.
"""
