"""Verdicts and alarms of a scenario over many seeds, without broker and clock: `python config/measure.py icu-sepsis`.

The thresholds, horizons, `for` and `keep` of the configurations in this folder were chosen with it. It prints the mean
number of verdicts by outcome, of alarms by state, and for how many seeds an alarm resolves within its episode.
`--formula` tries another formula; `--for` and `--keep` try another alarm.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from monitor.demo.agent import SimulatedAgent
from monitor.runtime.monitor import Monitor
from monitor.sidecar.config.load import Loaded, assemble
from monitor.stream.decode import decode
from monitor.types import Alert, FormulaSpec, Instant, Judged, Observation

HERE = Path(__file__).resolve().parent


@dataclass
class Counts:
    """Results of one seed. `first`: step at which the first alarm resolved within its episode."""

    verdicts: Counter[str] = field(default_factory=Counter)
    alerts: Counter[str] = field(default_factory=Counter)
    first: int | None = None
    seconds: list[float] = field(default_factory=list)


def main() -> None:
    """Run the seeds, print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", help="a configuration in this folder, without .yaml")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=300, help="steps for each seed, rounded up to whole episodes")
    parser.add_argument("--formula", help="formula to use instead of the first one of the configuration")
    parser.add_argument("--for", type=int, dest="for_")
    parser.add_argument("--keep", type=int)
    arguments = parser.parse_args()
    loaded = assemble(HERE / f"{arguments.scenario}.yaml")
    spec = _spec(loaded.formulas[0], arguments)
    print(spec.text, f"for {spec.alarm.for_} keep {spec.alarm.keep}")
    results = [_run(loaded, spec, seed, arguments.steps) for seed in range(arguments.seeds)]
    for name, counters in (
        ("verdicts", [result.verdicts for result in results]),
        ("alarms", [result.alerts for result in results]),
    ):
        total = sum(counters, Counter[str]())
        print(f"{name:8}", ", ".join(f"{word} {count / arguments.seeds:.1f}" for word, count in total.most_common()))
    firsts = sorted(result.first for result in results if result.first is not None)
    print(f"an alarm resolves within its episode for {len(firsts)} of {len(results)} seeds, first at steps {firsts}")
    seconds = np.concatenate([result.seconds for result in results])
    print(
        f"seconds a step: mean {seconds.mean():.4f}, p99 {np.quantile(seconds, 0.99):.4f}, largest {seconds.max():.4f}"
    )


def _spec(spec: FormulaSpec, arguments: argparse.Namespace) -> FormulaSpec:
    alarm = replace(spec.alarm, for_=arguments.for_ or spec.alarm.for_, keep=arguments.keep or spec.alarm.keep)
    return replace(spec, text=arguments.formula or spec.text, alarm=alarm)


def _run(loaded: Loaded, spec: FormulaSpec, seed: int, steps: int) -> Counts:
    counts = Counts()
    monitor = Monitor(loaded.model, loaded.tables, [spec], loaded.monitor.settings, identity=loaded.identity)
    for number, observation in enumerate(_observations(loaded, seed, steps), start=1):
        now = Instant(float(number), float(number))
        started = time.perf_counter()
        notices = [*monitor.observe(observation, now), *monitor.evaluate(now)]
        counts.seconds.append(time.perf_counter() - started)
        for notice in notices:
            match notice:
                case Judged(verdict=verdict):
                    counts.verdicts[verdict.outcome or str(verdict.holds)] += 1
                case Alert(state=state):
                    counts.alerts[state] += 1
                    counts.first = counts.first or (number if state == "resolved" else None)
    return counts


def _observations(loaded: Loaded, seed: int, steps: int) -> Iterator[Observation]:
    """Yield the messages of the demo's agent for this seed."""
    agent = SimulatedAgent.of(loaded.model, loaded.config.policies["nominal"], seed)
    for message in agent.messages(steps):
        yield decode("demo", msgspec.json.encode(message))


if __name__ == "__main__":
    main()
