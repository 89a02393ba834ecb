"""The whole sidecar in one process, on simulated time, network, broker and receivers, from one seed.

`python -m tests.simulation --seed 7` runs one seed, and `make soak-world` all of them, without end. The code of the
sidecar is the real one; only its doors lead into the world (`sidecar.py`): the clock, threads, sockets and posts. What
came of a seed is compared with the same steps in a pipeline that nothing disturbs (`invariants.py`).

| module | is |
|---|---|
| `world.py`, `loop.py` | virtual time: the events of the world, and an event loop of asyncio that never waits |
| `network.py`, `packets.py`, `broker.py` | byte streams; MQTT 3.1.1, with a codec of its own; a broker |
| `agents.py`, `receivers.py` | who publishes steps, and who receives webhooks |
| `guest.py`, `guards.py` | the real client library in a thread that takes turns with the world; agents with a guard |
| `scrapes.py` | a reader of `/readyz` and the page, at random moments |
| `disk.py` | power failures and full disks |
| `sidecar.py` | the lives of the real sidecar: start, end, kill |
| `scene.py`, `faults.py`, `swarm.py` | a fleet and its configuration drawn from a seed; what goes wrong; one run |
| `invariants.py` | what must hold after each run |
| `shrink.py` | a failing run made smaller |

`honest/` compares what the broker and the disk do here with mosquitto and SQLite.

Not simulated yet: MQTT 5, TLS, the HTTP server, reload, shards, the client library's publisher, slow disks, the end of
a process while its store fails, overload (evaluation takes no time here), agents whose steps have no time, and agents
that fall silent.
"""
