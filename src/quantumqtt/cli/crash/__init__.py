"""`quantumqtt torture`: a swarm that keeps account, a broker that is hurt, a judge over both.

The rooms inside: `ledger.py` judges and touches nothing else; `link.py` and `swarm.py` talk MQTT
and write into the ledger; `victim.py` owns the broker's process; `hurt.py` the ways to hurt it;
`run.py` walks through the rounds; `disk_model.py` and its neighbours are the disk that loses what
was not synced; `syncs.py` reads what strace saw.
"""
