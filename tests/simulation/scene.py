"""One small fleet with its configuration, drawn from a seed: world, broker, agents, sidecar and receivers together."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.faults.world import nominal, write_grid
from tests.simulation.agents import Agent, BridgedAgent, ConnectedAgent, Draft
from tests.simulation.broker import PORT, Broker
from tests.simulation.guards import Guard
from tests.simulation.network import Network
from tests.simulation.packets import Message
from tests.simulation.receivers import Receivers
from tests.simulation.scrapes import Reader
from tests.simulation.sidecar import NAME, Sidecar
from tests.simulation.world import World

SLIP: Final = 0.05
RATE: Final = 10.0
"""Steps a second of each agent."""


GUARDS: Final = 3
"""Agents with a guard, at most."""


class Scene:
    """Everything of one run. `heard`: what the broker took on `cfmon/#`, with the time; `log`: each agent's steps.

    `agents`: their number, drawn if None. `downtime`: seconds until the sidecar is started again after its end;
    None: never.
    """

    def __init__(self, seed: int, folder: Path, *, agents: int | None = None, keep: bool = False) -> None:
        self.world = World(seed, keep=keep)
        draw = self.world.draw
        self.network = Network(self.world)
        self.broker = Broker(
            self.world,
            self.network,
            inflight=draw.choice((0, 1, 20, 20, 100)),
            exceeds=draw.random() < 0.5,
            save_every=draw.choice((0.0, 0.5, 2.0)),
        )
        self.heard: list[tuple[float, Message]] = []
        self.log: list[tuple[str, bytes]] = []
        self.newest: dict[str, dict[str, Any]] = {}
        """Id of an alarm -> its newest alert that the broker took."""
        self.broker.delivered.append(self._hear)
        self.receivers = Receivers(self.world, ["pager", "chat"][: draw.randint(0, 2)])
        self.config = draw_config(draw, self.receivers.urls())
        write_grid(folder / "life-1", self.config, SLIP)
        self.sidecar = Sidecar(self.world, self.network, self.receivers, folder / "life-1")
        self.reader = Reader(self.sidecar, float(self.config["mqtt"]["keepalive"][:-1]), self.newest)
        self.guards: list[Guard] = []
        self.agents = [self._agent(n) for n in range(draw.choice((1, 2, 4, 8, 16)) if agents is None else agents)]
        self.downtime: float | None = None

    def _agent(self, n: int) -> Agent:
        draw = self.world.draw
        draft = Draft(
            f"a{n}",
            draw.getrandbits(32),
            lambda name, payload: self.log.append((name, payload)),
            SLIP,
            sends_end=draw.random() < 0.7,
            act=self._guard(f"a{n}") if len(self.guards) < GUARDS and draw.random() < 0.3 else nominal,
        )
        if draw.random() < 0.3:
            return ConnectedAgent(self.world, self.network, draft)
        return BridgedAgent(self.world, self.broker, draft)

    def _guard(self, agent: str) -> Guard:
        guard = Guard(self.world, self.network, self.broker, agent, float(self.config["heartbeat"][:-1]))
        self.guards.append(guard)
        return guard

    def _hear(self, message: Message) -> None:
        if message.topic.startswith("cfmon/"):
            self.heard.append((self.world.now, message))
        if message.topic.startswith("cfmon/alerts/") and message.payload:
            alert = json.loads(message.payload)
            if alert["revision"] >= self.newest.get(alert["id"], alert)["revision"]:
                self.newest[alert["id"]] = alert

    def kill(self, downtime: float) -> bool:
        """Kill the sidecar, if it runs, and start it again later."""
        if not self.sidecar.running or not self.sidecar.stored:
            return False
        self.downtime = downtime
        self.sidecar.kill()
        return True

    def restart(self, downtime: float) -> bool:
        """Have the sidecar end in order, if it runs, and start it again later."""
        if not self.sidecar.stored or not self.sidecar.stop():
            return False
        self.downtime = downtime
        return True

    def remove_formula(self) -> str:
        """Take the last formula out of the configuration, and have the sidecar read it; return its name.

        The first life with it cannot reach the broker for a while, and may be killed before it can.
        """
        removed = self.config["formulas"].pop()
        (self.sidecar.folder / "config.yaml").write_text(json.dumps(self.config))
        self.network.refusing.add(NAME)
        self.world.after(5.0, lambda: self.network.refusing.discard(NAME))
        if self.world.draw.random() < 0.5:
            self.world.after(3.0, lambda: self.kill(1.0))
        self.restart(0.5)
        return str(removed["name"])

    def take_downtime(self) -> float:
        """Return for how long the sidecar, which has just ended, stays away."""
        seconds, self.downtime = self.downtime, None
        assert seconds is not None, "the sidecar ended by itself"
        return seconds

    def settled(self) -> str:
        """Return what is still under way, or an empty text."""
        service = self.sidecar.service
        if not self.sidecar.running or service is None or service.health.readiness():
            return "the sidecar is not ready"
        if not self.sidecar.stored:
            return "the store fails"
        waiting = {
            "steps at agents": sum(agent.unsent for agent in self.agents),
            "steps at the broker": self.broker.waiting_for(NAME),
            "messages in the inbox": len(service.inbox),
            "steps to evaluate": service.worker.pipeline.waiting.steps,
            "alerts to publish": len(service.outbox),
            "guards that do not hear the monitor": sum(guard.deaf for guard in self.guards),
            "posts": sum(len(outbox) for outbox in service.webhooks.outboxes.values()),
        }
        return ", ".join(f"{what}: {count}" for what, count in waiting.items() if count)


def draw_config(draw: Random, urls: dict[str, str]) -> dict[str, Any]:
    """Return a configuration; nothing in it makes a step late, stale or skipped."""
    every = draw.choice((1, 1, 2, 3))
    formulas: list[dict[str, Any]] = [
        {
            "name": "tally",
            "formula": f'fallback@{draw.randint(3, 20)}.P>=0.98 [ G<=6 !"unsafe" ]',
            "alarm": {"severity": "info", "for": draw.randint(1, 2)},
        },
        {
            "name": "watch",
            "formula": f'regret(fallback@{draw.randint(1, 8)}, P>=0.9 [ G<=10 !"unsafe" ])',
            "every": every,
            "alarm": {"severity": "critical", "for": draw.randint(1, 3), "keep": draw.randint(1, 3)},
        },
        {
            "name": "advice",
            "formula": f'delta(fallback,nominal)@0.P>=0.0{draw.randint(2, 4)} [ G<={draw.randint(4, 8)} !"unsafe" ]',
            "alarm": {"severity": "critical", "when": "holds"},
        },
        {
            "name": "bounded",
            "formula": 'fallback@5.P>=0.95 [ G<=8 !"unsafe" ]',
            "causal_model": "any",
            "every": 2,
            "alarm": {"severity": "warning", "for": 2, "keep": 2},
        },
    ]
    chosen = draw.sample(formulas, draw.choice((1, 2, 2, 3, 4)))
    webhooks = {
        name: {
            "url": url,
            "timeout": f"{draw.choice((1, 3, 10))}s",
            "revisions": draw.random() < 0.5,
            **({"severities": [chosen[0]["alarm"]["severity"]]} if draw.random() < 0.3 else {}),
        }
        for name, url in urls.items()
    }
    return {
        "mqtt": {
            "url": f"mqtt://127.0.0.1:{PORT}",
            "client_id": NAME,
            "keepalive": f"{draw.choice((5, 10, 30))}s",
            "version": draw.choice(("5", "3.1.1")),
        },
        "model": "model.npz",
        "policies": {"nominal": "rash.yaml", "fallback": "careful.yaml"},
        "path": {"window": draw.choice((24, 64)), "reorder": {"wait": f"{draw.choice((200, 1000))}ms"}},
        "formulas": chosen,
        "stream": {"max_lag": "30m", "stale_after": "30m"},
        "heartbeat": f"{draw.choice((1, 2, 10))}s",
        "limits": {"queue": draw.choice((20, 1000, 100_000))},
        "http": {"listen": "127.0.0.1:0"},
        "store": {"path": "var/cfmon.sqlite"},
        "webhooks": webhooks,
    }
