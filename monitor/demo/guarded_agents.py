"""Agents of `cfmon demo --takeover`.

One half hands over when the monitor's alarms advise it; the other half never hands over.

They run in a separate process and share only the broker with the monitor. In each turn, every agent takes one step;
guarded agents ask `cfmon_client.Takeover` which action to take. One line of JSON with the tallies is written to stdout
each second and at the end. The process stops when all agents have finished their episodes, or at SIGTERM.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import cfmon_client
import numpy as np
from cfmon_client.publisher import Publisher
from cfmon_client.steps import Steps, share
from cfmon_client.takeover import NOMINAL

from monitor.demo.model_environment import ModelEnvironment
from monitor.errors import MonitorError
from monitor.model import MDP, load_model
from monitor.policy.onnx_policy import Actor

GUARDED, ALONE = "guarded", "alone"
"""Kinds of agents."""

FAILURE = "death"
"""Label of the states in which an episode has failed."""

RULES = {"when_blind": "carry_on", "when_silent": "carry_on", "back": "episode"}
"""Rules with which a takeover lasts until the episode is over, as in docs/experiments.md."""

MAX_EPISODE_STEPS = 200
"""Maximum number of steps of an episode. Longer episodes are truncated."""

ACKNOWLEDGED_WITHIN = 20.0
"""Seconds within which the broker must connect an agent, and acknowledge the last steps."""

REPORT_EVERY = 1.0
"""Seconds between two reports."""


@dataclass
class EpisodeTally:
    """Numbers of ended episodes of one kind of agents: in total, without a failure, and with a takeover."""

    episodes: int = 0
    survived: int = 0
    takeovers: int = 0


@dataclass
class Agent:
    """One simulated agent. `guard`: None if it never hands over. `left`: number of episodes still to begin."""

    simulator: ModelEnvironment
    steps: Steps
    guard: cfmon_client.Takeover[int, int] | None
    left: int
    state: int = 0
    length: int = 0
    handed_over: bool = False

    def begin(self) -> None:
        """Begin an episode."""
        self.left -= 1
        self.state, self.length, self.handed_over = self.simulator.reset(), 0, False
        self.steps.reset()
        if self.guard is not None:
            self.guard.reset(self.steps.episode)

    def act(self, proposed: int, nominal: str | None) -> None:
        """Take the action `proposed`, or the guard's choice, and publish it.

        `nominal`: SHA-256 of the agent's own policy.
        """
        action, policy = proposed, nominal
        if self.guard is not None:
            action = self.guard.action(self.state, proposed)
            self.handed_over |= self.guard.acting.policy != NOMINAL
            policy = self.guard.acting.sha256
        self.steps.step(self.state, action, policy=policy)
        self.state, self.length = self.simulator.step(action), self.length + 1

    @property
    def over(self) -> bool:
        """True if the episode has ended, or has reached its maximum length."""
        return self.simulator.over or self.length >= MAX_EPISODE_STEPS

    def end(self, tally: EpisodeTally, failed: bool) -> None:  # noqa: FBT001 - the one thing there is to say
        """Publish the last state, and count the episode."""
        self.steps.end(self.state, terminated=self.simulator.over)
        tally.episodes += 1
        tally.survived += not failed
        tally.takeovers += self.handed_over


@dataclass
class Ward:
    """All agents, which act at the same time."""

    model: MDP
    nominal: Actor
    publisher: Publisher
    agents: list[Agent]
    rng: np.random.Generator
    tallies: dict[str, EpisodeTally] = field(default_factory=lambda: {GUARDED: EpisodeTally(), ALONE: EpisodeTally()})

    def run(self, interval: float) -> None:
        """Run all episodes of all agents. `interval`: seconds after each turn in which alarms may arrive."""
        reported = time.monotonic()
        living = [agent for agent in self.agents if agent.left]
        for agent in living:
            agent.begin()
        while living:
            self._turn(living)
            living = [agent for agent in living if self._goes_on(agent)]
            if time.monotonic() - reported >= REPORT_EVERY:
                reported = time.monotonic()
                self.report()
            if not self.publisher.flush(ACKNOWLEDGED_WITHIN):
                raise TimeoutError("the broker does not acknowledge the steps")
            time.sleep(interval)
        self.report()

    def report(self) -> None:
        """Write the tallies to stdout."""
        sys.stdout.write(json.dumps({kind: vars(tally) for kind, tally in self.tallies.items()}) + "\n")
        sys.stdout.flush()

    def _turn(self, living: Sequence[Agent]) -> None:
        proposed = self.nominal.decide_all(np.array([agent.state for agent in living]), self.rng)
        for agent, action in zip(living, proposed, strict=True):
            agent.act(int(action), self.nominal.manifest.sha256)

    def _goes_on(self, agent: Agent) -> bool:
        """If the agent's episode is over, end it and begin another; return whether the agent has an open episode."""
        if not agent.over:
            return True
        kind = ALONE if agent.guard is None else GUARDED
        agent.end(self.tallies[kind], failed=bool(self.model.labels[FAILURE][agent.state]))
        if agent.left:
            agent.begin()
            return True
        return False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agents that the command line describes; return the exit code."""
    given = _arguments(argv)
    logging.getLogger("cfmon_client").setLevel(logging.ERROR)  # a line for each of hundreds of takeovers
    try:
        with ExitStack() as stack:
            _admit(given, stack).run(given.interval)
    except (MonitorError, cfmon_client.ClientError, OSError) as error:
        sys.stderr.write(f"agents: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _arguments(argv: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser("python -m monitor.demo.guarded_agents", description=__doc__)
    parser.add_argument("--model", required=True, help="model to simulate")
    parser.add_argument("--policy", required=True, type=Path, help="manifest of the agents' own ONNX policy")
    parser.add_argument("--fallback", required=True, type=Path, help="manifest of the policy to hand over to")
    parser.add_argument("--url", required=True, help="URL of the MQTT broker")
    parser.add_argument("--steps", required=True, help="topic of steps, with + for the agent's name")
    parser.add_argument("--alerts", required=True, help="root of the topics of alerts")
    parser.add_argument("--status", required=True, help="root of the topics of the monitor's status")
    parser.add_argument("--agents", type=int, default=20, help="agents of each kind")
    parser.add_argument("--episodes", type=int, required=True, help="episodes of each kind")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between two steps of an agent")
    return parser.parse_args(argv)


def _admit(given: Namespace, stack: ExitStack) -> Ward:
    """Connect and return the agents; `stack` closes them."""
    model = load_model(given.model)
    nominal, fallback = (Actor.load(path, model) for path in (given.policy, given.fallback))
    environment, choices, other_choices = np.random.default_rng(given.seed).spawn(3)
    publisher = Publisher(given.url)
    stack.callback(publisher.close, ACKNOWLEDGED_WITHIN)
    agents = []
    for kind in (GUARDED, ALONE):
        names = [f"{kind}-{number}" for number in range(min(given.agents, given.episodes))]
        for number, steps in enumerate(share(publisher, names, policy=None, topic=given.steps)):
            guard = None
            if kind == GUARDED:
                guard = cfmon_client.Takeover[int, int](
                    given.url,
                    agent=steps.agent,
                    policies={"fallback": lambda state: fallback.decide(state, other_choices)},
                    rules=RULES,
                    sha256={NOMINAL: nominal.manifest.sha256, "fallback": fallback.manifest.sha256},
                    alerts_topic=given.alerts,
                    status_topic=given.status,
                )
                stack.callback(guard.close)
                if not guard.wait(ACKNOWLEDGED_WITHIN):  # one by one: the demo's broker fails if many connect at once
                    raise TimeoutError(f"{steps.agent} does not hear the monitor")
            episodes = len(range(number, given.episodes, len(names)))
            agents.append(Agent(ModelEnvironment(model, environment), steps, guard, episodes))
    return Ward(model, nominal, publisher, agents, choices)


if __name__ == "__main__":
    sys.exit(main())
