"""Compile in advance what `cfmon run` compiles at its first steps: `python -m monitor.cli.warm [CONFIG...]`.

numba keeps the machine code in `NUMBA_CACHE_DIR`, so that a monitor on a read-only file system starts at once. Without
a CONFIG, every kind of formula is evaluated on a small model; with one, its own formulas. The agent is simulated in
memory: nothing is sent or stored.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgpack
import numpy as np

from monitor.cli.agent import SimulatedAgent
from monitor.cli.files import data_file
from monitor.cli.simulator import Simulator
from monitor.errors import MonitorError
from monitor.policy.session import Actor
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.config.reading import Config
from monitor.sidecar.config.settings import FormulaConfig
from monitor.sidecar.events import Evaluate, Message
from monitor.types import Instant

__all__ = ["configurations", "main", "warm"]

STEPS: Final = 60
"""Enough for paths to start, to exceed every offset and to end, so that every function is called."""

FORMULAS: Final = (
    'regret(fallback@3, P>=0.8 [ G<=8 !"hole" ])',
    'fallback@3.P>=0.5 [ !"hole" U<=8 "goal" ]',
    'P>=0.5 [ G<=4 P>=0.5 [ F<=3 "goal" ] ]',
    'P>=0.1 [ G<=2 fallback@2.P>=0.5 [ G<=4 !"hole" ] ]',
    "delta(fallback,nominal)@3.R=? [ C<=8 ]",
    'best[<=2]@3.P>=0.8 [ G<=8 !"hole" ]',
)
"""One of each kind: regret, one world, nested, nested with an offset, an expected reward, decisions for the goal."""


def configurations(configs: Sequence[str]) -> Iterator[tuple[str, Loaded]]:
    """Yield the name and content of each configuration to compile for. Raises what `assemble` raises."""
    if not configs:
        exact = [{"formula": formula, "causal_model": bound} for formula in FORMULAS for bound in ("gumbel", "any")]
        yield "every kind of formula", assemble(_config(exact))  # apart: sampled formulas have no lanes
        yield "sampled formulas", assemble(_config([{"formula": each, "engine": "sampled"} for each in FORMULAS[:2]]))
    for config in configs:
        yield config, assemble(config, environment={})


def _config(formulas: Sequence[Mapping[str, str]]) -> Config:
    return Config(
        model=str(data_file("policies/frozen-lake/model.npz")),
        policies={
            "nominal": data_file("policies/frozen-lake/rash.yaml"),
            "fallback": data_file("policies/frozen-lake/good.yaml"),
        },
        formulas=tuple(FormulaConfig.model_validate({"name": f"kind{n}", **kind}) for n, kind in enumerate(formulas)),
    )


def warm(loaded: Loaded) -> int:
    """Monitor a simulated agent, so that everything is compiled; return the number of steps.

    Raises ModelError if the model has no initial distribution, PolicyError if the policy cannot be run.
    """
    environment_rng, policy_rng = np.random.default_rng(0).spawn(2)
    actor = Actor.load(loaded.config.policies["nominal"], loaded.model)
    agent = SimulatedAgent(Simulator(loaded.model, environment_rng), actor, policy_rng, "warm")
    topic = loaded.config.mqtt.steps.replace("+", "warm")
    pipeline = loaded.pipeline("warm")
    number = 0
    for number, message in enumerate(agent.messages(STEPS), start=1):
        now = Instant(wall=float(number), ticks=float(number))
        pipeline.step(Message(now, topic, msgpack.packb({**message, "time": now.wall})))
        pipeline.step(Evaluate(now))
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Compile for every kind of formula, or for the given configurations; return the exit code."""
    start = time.perf_counter()
    try:
        for name, loaded in configurations(sys.argv[1:] if argv is None else argv):
            steps = warm(loaded)
            sys.stdout.write(f"warm: {name}, {steps} steps; {time.perf_counter() - start:.1f} s so far\n")
    except (MonitorError, OSError) as error:
        sys.stderr.write(f"warm: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
