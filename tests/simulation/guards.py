"""Agents that the client library guards, and the witness who judges each of their steps.

The witness knows what the broker took from the monitor, and what must have reached the guard by now. In between lies
what the guard may know or not know; only what is wrong either way is a problem. Its rules are those of
`docs/takeover.md`, not the code of the guard.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from cfmon_client import Acting, Rules, Takeover, takeover

from benchmarks.process.grid import FALLBACK, NOMINAL
from tests.simulation.broker import PORT, Broker
from tests.simulation.guest import Guest
from tests.simulation.network import End, Network
from tests.simulation.packets import Message
from tests.simulation.world import World

MOST: Final = 5
"""Problems of one guard that are named."""


@dataclass(frozen=True)
class Said:
    """What the monitor has said about the agent's episode. `blind`: None if that cannot be known from a status."""

    at: float
    wanted: bool = False
    firing: bool = False
    alarm_blind: bool = False
    listed_blind: bool | None = False


class Witness:
    """Judges the steps of the guard of one agent."""

    def __init__(self, world: World, broker: Broker, agent: str, client_id: str, rules: Rules) -> None:
        self._world, self._broker, self._rules = world, broker, rules
        self._agent, self._client_id = agent, client_id
        self._episode: int | None = None
        self._newest: dict[str, dict[str, Any]] = {}
        self._seen: set[bytes] = set()
        self._listed_blind: bool | None = False
        self._said = deque([Said(world.now)])
        self._signs: list[tuple[float, End]] = []  # signs of life that may still be on their way, or were just heard
        self._fresh = self._fresh_before = world.now  # what the broker took until then has reached the guard
        self._sign = self._sign_before = world.now  # the newest that has reached it
        self._may_have_heard = world.now
        self._losses = broker.losses
        self._doubt = float("inf")
        self._problems = 0
        broker.delivered.append(self._hear)

    # ---- what the monitor says ----

    def _hear(self, message: Message) -> None:
        kind, name = message.topic.split("/")[1:3]
        if message.payload in self._seen or not message.payload:  # what is sent again is nothing new
            return
        if kind == "status":
            self._seen.add(message.payload)
            self._hear_status(json.loads(message.payload))
        elif kind == "alerts" and name == self._agent:
            self._seen.add(message.payload)
            alert = json.loads(message.payload)
            self._newest[alert["formula"]["name"]] = alert
            self._note()

    def _hear_status(self, status: dict[str, Any]) -> None:
        if status["state"] != "online":
            return
        if (end := self._broker.listener(self._client_id)) is not None:
            self._signs.append((self._world.now, end))
        listed = status["blind_formulas"].get(self._agent, {})
        self._listed_blind = any(
            reason != "model_doubt" and (self._rules.formulas is None or formula in self._rules.formulas)
            for formula, reason in listed.items()
        )
        self._note()

    def _note(self) -> None:
        alerts = [
            alert
            for alert in self._newest.values()
            if alert["state"] == "firing"
            and alert["episode"] == self._episode
            and alert["severity"] in self._rules.severity
            and (self._rules.formulas is None or alert["formula"]["name"] in self._rules.formulas)
        ]
        wanted = any(
            alert["handover"] is not None and (alert["handover"]["helps_now"] is True or not self._rules.only_if_helps)
            for alert in alerts
        )
        blind = any(alert["blind"] not in {None, "model_doubt"} for alert in alerts)
        self._said.append(Said(self._world.now, wanted, bool(alerts), blind, self._listed_blind))

    def begin(self, episode: int) -> None:
        """Another episode begins: no earlier alarm counts."""
        self._episode = episode
        self._said = deque(replace(each, wanted=False, firing=False, alarm_blind=False) for each in self._said)
        self._note()

    # ---- what the guard does ----

    def look(self) -> None:
        """Note what has reached the guard by now. Call this before each of its steps."""
        now, listener = self._world.now, self._broker.listener(self._client_id)
        self._fresh_before, self._sign_before = self._fresh, self._sign  # it has had the time of a step to process it
        if self._broker.losses > self._losses:  # what the broker retains may be old until it is said again
            self._losses, self._doubt = self._broker.losses, min(self._doubt, self._fresh)
        fresh = listener is not None and self._broker.waiting_for(self._client_id) == 0
        if fresh:
            self._fresh = now
        for at, end in list(self._signs):
            self._may_have_heard = now
            if end is not listener or fresh:
                self._signs.remove((at, end))
            if end is listener and fresh:
                self._sign = at
        since = min(self._fresh_before, self._doubt, self._sign_before)
        while len(self._said) > 1 and self._said[1].at <= since:
            self._said.popleft()

    def judge(self, acting: Acting) -> None:
        """Note what is wrong about who acts in this step."""
        rules, now, steps = self._rules, self._world.now, acting.steps
        since = min(self._fresh_before, self._doubt)
        later = [place for place, each in enumerate(self._said) if each.at > since]
        said = list(self._said)[max((later or [len(self._said)])[0] - 1, 0) :]
        silent = now - self._may_have_heard > rules.silent_after
        perhaps_silent = now - self._sign_before > rules.silent_after
        blind = [each.alarm_blind for each in said], [each.listed_blind for each in self._said]
        certainly_blind = all(blind[0]) or all(each is True for each in blind[1])
        perhaps_blind = any(blind[0]) or any(each is not False for each in blind[1])
        due = {
            "silent": silent and rules.when_silent == "fallback",
            "alarm": not perhaps_silent and all(each.wanted for each in said),
            "blind": not perhaps_silent and certainly_blind and rules.when_blind == "fallback",
        }
        possible = {
            "silent": perhaps_silent and rules.when_silent == "fallback",
            "alarm": not silent and any(each.wanted for each in said),
            "blind": not silent and perhaps_blind and rules.when_blind == "fallback",
        }
        over = not (perhaps_silent or perhaps_blind or any(each.firing for each in said))
        if steps == 0:
            for cause in (cause for cause, missed in due.items() if missed):
                self._complain(f"misses what is due: {cause}")
        elif steps == 1 and not possible[acting.cause or ""]:
            self._complain(f"acts on what is stale: {acting.cause}")
        elif steps > rules.hold and rules.back == "resolved" and over:
            self._complain(f"goes on for {steps} steps, although all is over")

    def _complain(self, what: str) -> None:
        self._problems += 1
        self._world.note(f"guard of {self._agent} {what}")
        if self._problems <= MOST:
            self._world.problems.append(f"the guard of {self._agent} at {self._world.now:.3f} s {what}")


class Guard:
    """The real guard of one agent, its rules drawn. Call this with each step of the agent; it returns who acts how."""

    def __init__(self, world: World, network: Network, broker: Broker, agent: str, heartbeat: float) -> None:
        draw = world.draw
        self._agent = agent
        self._rules = Rules(
            when_blind=draw.choice(("carry_on", "carry_on", "fallback")),
            when_silent=draw.choice(("carry_on", "fallback")),
            severity=draw.choice((("critical",), ("info", "warning", "critical"))),
            only_if_helps=draw.random() < 0.7,
            hold=draw.randint(1, 5),
            back=draw.choice(("resolved", "resolved", "episode")),
            silent_after=heartbeat * draw.choice((1.5, 2.5)),
        )
        self._world, self._broker = world, broker
        self.name = f"guard-{agent}"
        self._client_id = f"cfmon-client-{self.name}"
        self._guest = Guest(world, network, self.name)
        self._takeover: Takeover[int, int] | None = None
        self.takeovers = Counter[str]()
        """Cause -> number of takeovers; known after `close`."""

    def __call__(self, episode: int, seq: int, cell: int) -> dict[str, Any]:
        """Return the action of a step, and who took it."""
        guard = self._takeover or self._start()
        if seq == 0:
            guard.reset(episode)
            self._witness.begin(episode)
        self._witness.look()
        action, acting = guard.action(cell, NOMINAL[cell]), guard.acting
        self._world.note(f"acts {self._agent} {acting.policy} {acting.cause} {acting.steps}")
        self._witness.judge(acting)
        return {"action": action} if acting.sha256 is None else {"action": action, "policy": acting.sha256}

    @property
    def deaf(self) -> bool:
        """Whether it is not connected, or has not heard the monitor for long."""
        away = self._broker.listener(self._client_id) is None
        return self._takeover is not None and (away or self._takeover.status.silent)

    def close(self) -> None:
        """End it in order."""
        if self._takeover is not None:
            self._takeover.close()
            self.takeovers = Counter(self._takeover.status.takeovers)
            if (problem := self._takeover.status.problem) and "ended" in problem:
                self._world.errors.append(f"the guard of {self._agent}: {problem}")
            if not self._guest.ended:
                self._world.problems.append(f"the guard of {self._agent} does not end")
                self._guest.kill()

    def _start(self) -> Takeover[int, int]:
        world = self._world
        self._witness = Witness(world, self._broker, self._agent, self._client_id, self._rules)
        world.note(f"guard of {self._agent}: {asdict(self._rules)}")
        with self._guest.doors(takeover):
            self._takeover = Takeover(
                f"mqtt://127.0.0.1:{PORT}",
                self._agent,
                {"fallback": FALLBACK.__getitem__},
                rules=self._rules,
                clock=lambda: world.now,
            )
        return self._takeover
