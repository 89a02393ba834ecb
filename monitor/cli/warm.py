"""Compile ahead what `cfmon run` would compile at its first steps: `python -m monitor.cli.warm [CONFIG...]`.

The machine code is kept where numba keeps it (`NUMBA_CACHE_DIR`), so that a sidecar on a read-only file system is ready
at once. Without a CONFIG every kind of question is asked of a small world; a CONFIG asks its own. An agent lives in
memory only: nothing is sent or stored.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgpack
import numpy as np

from monitor.cli.agent import Life
from monitor.cli.files import data_file
from monitor.cli.simulator import Simulator
from monitor.errors import MonitorError
from monitor.policy.session import Actor
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.config.reading import Config
from monitor.sidecar.config.settings import FormulaConfig
from monitor.sidecar.events import Evaluate, Message
from monitor.types import Instant

__all__ = ["main", "warm"]

STEPS: Final = 60
"""Enough for paths to begin, to fill their offsets and to end, and so for everything to be called."""

QUESTIONS: Final = (
    'regret(fallback@3, P>=0.8 [ G<=8 !"hole" ])',
    'fallback@3.P>=0.5 [ !"hole" U<=8 "goal" ]',
    'P>=0.5 [ G<=4 P>=0.5 [ F<=3 "goal" ] ]',
    'P>=0.1 [ G<=2 fallback@2.P>=0.5 [ G<=4 !"hole" ] ]',
    "delta(fallback,nominal)@3.R=? [ C<=8 ]",
)
"""One of each kind: over two worlds, over one, nested, nested and looking back, a mean."""


def worlds(configs: Sequence[str]) -> Iterator[tuple[str, Loaded]]:
    """Name and content of what there is to warm for. Raises what `assemble` raises."""
    if not configs:
        yield "every kind of question", assemble(_everything())
    for config in configs:
        yield config, assemble(config, environment={})


def _everything() -> Config:
    exact = [{"formula": question, "causal_model": bound} for question in QUESTIONS for bound in ("gumbel", "any")]
    sampled = [{"formula": question, "engine": "sampled"} for question in QUESTIONS[:2]]
    return Config(
        model=str(data_file("policies/frozen-lake/model.npz")),
        policies={
            "nominal": data_file("policies/frozen-lake/rash.yaml"),
            "fallback": data_file("policies/frozen-lake/good.yaml"),
        },
        formulas=tuple(
            FormulaConfig.model_validate({"name": f"kind{n}", **kind}) for n, kind in enumerate(exact + sampled)
        ),
    )


def warm(loaded: Loaded) -> int:
    """Let an agent live and answer what is asked of it; returns after how many steps.

    Raises ModelError if the model does not say where an episode begins, PolicyError if the policy cannot be run.
    """
    world, own = np.random.default_rng(0).spawn(2)
    actor = Actor.load(loaded.config.policies["nominal"], loaded.model)
    life = Life(Simulator(loaded.model, world), actor, own, "warm")
    topic = loaded.config.mqtt.steps.replace("+", "warm")
    pipeline = loaded.pipeline("warm")
    number = 0
    for number, message in enumerate(life.messages(STEPS), start=1):
        now = Instant(wall=float(number), ticks=float(number))
        pipeline.step(Message(now, topic, msgpack.packb({**message, "time": now.wall})))
        pipeline.step(Evaluate(now))
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Warm for everything, or for the configurations named; returns the exit code."""
    begun = time.perf_counter()
    try:
        for name, loaded in worlds(sys.argv[1:] if argv is None else argv):
            steps = warm(loaded)
            sys.stdout.write(f"warm: {name}, {steps} steps; {time.perf_counter() - begun:.1f} s by now\n")
    except (MonitorError, OSError) as error:
        sys.stderr.write(f"warm: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
