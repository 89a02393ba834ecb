"""One run of a seed, from its fleet to its invariants; and many of them."""

from __future__ import annotations

import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.simulation.agents import Agent
from tests.simulation.faults import FAULTS
from tests.simulation.guest import client_doors
from tests.simulation.invariants import check, check_end, check_removed
from tests.simulation.scene import RATE, Scene

MEMORY: Final = Path("/dev/shm")
"""Where the files are: fast, and for nobody's keeping."""

FIRST_STEP: Final = 1.0
"""Seconds until agents begin: the broker keeps no steps for a sidecar that it does not know yet."""

BEGIN: Final = 5.0
"""Seconds without faults: a broker has saved the session by then."""

PATIENCE: Final = 600.0
"""Seconds within which everything settles after the last fault, at most."""

QUIET: Final = 8.0
"""Seconds that must pass after that: timers for missing steps expire."""


@dataclass(frozen=True)
class Plan:
    """What is run. `seconds`: for how long agents step; `agents`: their number; `kinds`: of faults.

    What is None is drawn from the seed.
    """

    seed: int
    seconds: float | None = None
    agents: int | None = None
    kinds: tuple[str, ...] | None = None

    @property
    def command(self) -> str:
        """The command that runs it again."""
        options = f"--seed {self.seed}"
        options += "" if self.seconds is None else f" --seconds {self.seconds:g}"
        options += "" if self.agents is None else f" --agents {self.agents}"
        options += "" if self.kinds is None else f" --faults '{','.join(self.kinds)}'"
        return f"python -m tests.simulation {options}"


@dataclass
class Result:
    """What came of a plan, which lasted `seconds`. `steps`, `hours`: of all agents together.

    `takeovers`: by guards, for each cause.

    `problems`: all that does not hold; its last are `errors`, exceptions.
    """

    plan: Plan
    agents: int
    seconds: float
    digest: str
    steps: int
    hours: float
    faults: Counter[str]
    takeovers: Counter[str]
    problems: list[str]
    errors: list[str]
    lines: list[str] = field(default_factory=list)


def run(plan: Plan, *, keep: bool = False) -> Result:
    """Run a plan. `keep`: the trace."""
    with tempfile.TemporaryDirectory(prefix="cfmon-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        scene = Scene(plan.seed, Path(folder), agents=plan.agents, keep=keep)
        play = _Play(scene, plan)
        with scene.sidecar.doors(), client_doors(scene.world):
            try:
                play.run()
            except Exception:  # noqa: BLE001 - of the sidecar or of the world: it belongs to the seed
                scene.world.errors.append(traceback.format_exc())
            finally:
                for guard in scene.guards:
                    guard.close()
        world = scene.world
        steps = len(scene.log)
        return Result(
            plan,
            len(scene.agents),
            play.until - BEGIN,
            world.digest,
            steps,
            steps / RATE / 3600,
            world.faults,
            sum((guard.takeovers for guard in scene.guards), Counter[str]()),
            world.problems + world.errors,
            world.errors,
            world.lines or [],
        )


class _Play:
    """The course of one run: faults while agents step, then quiet, then the invariants, then the end."""

    def __init__(self, scene: Scene, plan: Plan) -> None:
        self._scene = scene
        draw = scene.world.draw
        self.until = BEGIN + (draw.uniform(10.0, 60.0) if plan.seconds is None else plan.seconds)
        names = sorted(FAULTS) if plan.kinds is None else plan.kinds
        self._kinds = draw.sample(names, draw.randint(min(1, len(names)), len(names)))
        self._pause = draw.choice((1.0, 3.0, 10.0))
        self._over = False
        self._removed = ""

    def run(self) -> None:
        scene, world = self._scene, self._scene.world
        if world.draw.random() < 0.5:
            world.at(FIRST_STEP, self._step_all)
        else:
            for agent in scene.agents:
                world.at(FIRST_STEP + world.draw.random() / RATE, partial(self._step_one, agent))
        if self._kinds:
            world.at(BEGIN, self._harm)
        world.at(self.until, lambda: self._wait(world.now + PATIENCE, 0.0))
        while not self._over:
            scene.sidecar.run()
            if not self._over:
                world.advance(world.now + scene.take_downtime())
        scene.world.problems += check_end(scene)

    def _step_all(self) -> None:
        """All agents in the same moment, as those of one simulator do."""
        world = self._scene.world
        if world.now < self.until:
            for agent in self._scene.agents:
                agent.step()
            world.after(1 / RATE, self._step_all)

    def _step_one(self, agent: Agent) -> None:
        world = self._scene.world
        if world.now < self.until:
            agent.step()
            world.after(world.draw.uniform(0.5, 1.5) / RATE, partial(self._step_one, agent))

    def _harm(self) -> None:
        world = self._scene.world
        if world.now < self.until:
            FAULTS[world.draw.choice(self._kinds)](self._scene)
            world.after(world.draw.expovariate(1 / self._pause), self._harm)

    def _wait(self, deadline: float, quiet: float) -> None:
        """Wait until nothing is under way for a while; then check, and end."""
        scene, world = self._scene, self._scene.world
        left = scene.settled()
        service = scene.sidecar.service
        if service is not None and len(service.inbox) > service.inbox.limit:
            world.problems.append(f"{len(service.inbox)} messages in an inbox of {service.inbox.limit}")
        if left and world.now > deadline:
            world.problems.append(f"it does not settle within {PATIENCE:.0f} s: {left}")
        elif left or quiet < QUIET:
            world.after(0.5, lambda: self._wait(deadline, 0.0 if left else quiet + 0.5))
            return
        elif self._removed:
            world.problems += check_removed(scene, self._removed)
        else:
            scene.reader.over = True
            world.problems += check(scene)
            if len(scene.config["formulas"]) > 1:
                self._removed = scene.remove_formula()
                world.after(1.0, lambda: self._wait(world.now + PATIENCE, 0.0))
                return
        self._over = True
        scene.sidecar.at_commit = None  # what is checked after this end is that it was in order
        scene.sidecar.stop()
