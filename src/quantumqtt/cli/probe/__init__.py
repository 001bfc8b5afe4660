"""What `quantumqtt test` does: asks a broker, clause by clause, whether it obeys MQTT.

`peer.py` speaks packets, wrong ones included; the checks stand in `basics.py`, `messages.py`,
`sessions.py`, `version_5.py` and `malformed.py`; `run.py` runs them and cleans up.
"""
