"""The whole process behind a broker: rate and lag compared with bare subscribers, a thousand agents, start-up.

The harness (mosquitto, publishers, the subscribers that only decode) is `benchmarks/process/harness.py`. Without
mosquitto, the rows report that.
"""

from __future__ import annotations

from shutil import which
from typing import Any

from benchmarks.loading import Missing
from benchmarks.rows import Bench, Row, absolute, benchmark, compare, unmeasured
from benchmarks.timing import Timing
from monitor.errors import to_install

__all__ = ["agents", "process", "shipped", "start"]

BARE, GMQTT = "bare aiomqtt subscriber", "bare gmqtt subscriber"


def measured(bench: Bench, name: str, *arguments: object) -> Any | Missing:  # noqa: ANN401 - a result of the harness
    """Return the result of a function of the harness, or the reason why it cannot run."""
    if which("mosquitto") is None:
        missing = bench.peers.get("process.harness", name)
        return missing if isinstance(missing, Missing) else Missing("mosquitto is not installed")
    return bench.peers.make("process.harness", name, *arguments)


def once(value: float) -> Timing:
    """Return the timing of a single measurement, or of a percentile."""
    return Timing(value, value, 1)


@benchmark("process")
def process(bench: Bench) -> list[Row]:
    """Measure `cfmon run` over mosquitto, QoS 1, with one formula on the 4x4 grid."""
    title, lag = "a message in a flood, whole process over mosquitto, QoS 1", "p99 lag of a message at 2,000 a second"
    every, unstored = "the same, with a verdict for every step", "the same lag without a store"
    found = measured(bench, "whole_process", *([0.5] if bench.quick else []))
    if isinstance(found, Missing):
        return [
            unmeasured("process/rate", title, ">= 1.5x", found),
            unmeasured("process/gmqtt", title, ">= 0.6x", found),
            unmeasured("process/every", every, "-", found),
            unmeasured("process/lag", lag, "<= 2x", found),
            unmeasured("process/lag/unstored", unstored, "aim: <= 2x", found),
        ]
    note = (
        f"{found.rate:,.0f} and {found.bare_rate:,.0f} messages a second; {found.answered:.0%} of the steps evaluated"
    )
    note += f"; {found.busy * 1e6:.0f} and {found.bare_busy * 1e6:.0f} us of CPU time each, broker excluded"
    every_note = f"{found.every_rate:,.0f} messages a second; {found.every_busy * 1e6:.0f} us of CPU time each"
    ours, theirs, bare_lag = once(1.0 / found.rate), once(1.0 / found.bare_rate), once(found.bare_lag[1])
    gmqtt: Timing | Missing = Missing(f"gmqtt is not installed: {to_install('bench')}")
    gmqtt_note = ""
    if found.gmqtt_rate is not None:
        gmqtt = once(1.0 / found.gmqtt_rate)
        gmqtt_note = f"{found.gmqtt_rate:,.0f} messages a second, {found.gmqtt_busy * 1e6:.0f} us of CPU time each"
    steady = f"at {found.pace:,.0f} a second; {found.steady_answered:.0%} of the steps evaluated"
    return [
        compare("process/rate", title, ours, theirs, peer=BARE, at_least=1.5, note=note),
        compare("process/gmqtt", title, ours, gmqtt, peer=GMQTT, at_least=0.6, note=gmqtt_note),
        compare("process/every", every, once(1.0 / found.every_rate), theirs, peer=BARE, note=every_note),
        compare("process/lag", lag, once(found.lag[1]), bare_lag, peer=BARE, at_most=2.0, note=steady),
        compare(
            "process/lag/unstored", unstored, once(found.unstored_lag[1]), bare_lag, peer=BARE, at_most=2.0, aim=True
        ),
    ]


@benchmark("agents")
def agents(bench: Bench) -> list[Row]:
    """Measure a thousand agents on one core, scraped every second."""
    title = "lag of a message, 1,000 agents at 10 a second each on one core, scraped every second"
    memory = "memory per agent, of a thousand agents"
    found = measured(bench, "many_agents", *([2.0] if bench.quick else []))
    if isinstance(found, Missing):
        return [
            unmeasured("agents/lag", title, "p99 < 100 ms, sustained", found),
            unmeasured("agents/memory", memory, "<= 100 KB", found),
        ]
    note = (
        f"{found.accepted:,} of {found.sent:,} steps accepted, {found.answered:,} evaluated; "
        f"median {found.lag[0] * 1e3:.3g} ms; the core is {found.busy:.0%} busy; "
        f"longest scrape {found.scrape:.2g} s"
    )
    kilobytes = once(found.bytes_an_agent / 1000)
    return [
        absolute("agents/lag", title, once(found.lag[1]), at_most=0.1, target="p99 < 100 ms, sustained", note=note),
        absolute("agents/memory", memory, kilobytes, at_most=100.0, target="<= 100 KB", unit="KB"),
    ]


@benchmark("shipped")
def shipped(bench: Bench) -> list[Row]:
    """Measure a thousand agents under each shipped configuration, alarms, evidence and bounds included.

    Twice: the first steps that a new monitor sees, and as many after them, most of whose questions were asked before.
    """
    rows = []
    target = "p99 < 100 ms, sustained"
    for config in ("frozen-lake", "icu-sepsis"):
        fleet = f"1,000 agents at 10 a second each on one core, config/{config}.yaml as it is"
        found = measured(bench, "shipped", config, *([1.0] if bench.quick else []))
        for n, (name, which_steps) in enumerate((("", "the first steps"), ("/later", "as many later ones"))):
            row, title = f"shipped/{config}{name}", f"CPU time of a message, {which_steps} of {fleet}"
            lag = f"lag of such a message, {which_steps}, config/{config}.yaml"
            if isinstance(found, Missing):
                rows += [unmeasured(row, title, "<= 1.5x", found), unmeasured(f"{row}/lag", lag, target, found)]
                continue
            note = f"{found.accepted[n]:,} of {found.sent:,} steps accepted, {found.answered[n]:.0%} evaluated; "
            note += f"{found.alerts[n]:.1%} publish an alert"
            ours, bare, lags = once(found.busy[n]), once(found.bare_busy), once(found.lag[n][1])
            rows += [
                compare(row, title, ours, bare, peer=BARE, at_most=1.5),
                absolute(f"{row}/lag", lag, lags, at_most=0.1, target=target, note=note),
            ]
    return rows


@benchmark("start")
def start(bench: Bench) -> list[Row]:
    """Measure a start whose files are in the cache."""
    imported, ready, memory = "importing what `cfmon run` needs", "from start to ready", "memory when ready"
    found = measured(bench, "starting", *([1] if bench.quick else []))
    if isinstance(found, Missing):
        return [
            unmeasured("start/import", imported, "<= 0.5 s", found),
            unmeasured("start/ready", ready, "<= 1 s", found),
            unmeasured("start/memory", memory, "<= 100 MB", found),
        ]
    return [
        absolute("start/import", imported, once(found.imported), at_most=0.5, target="<= 0.5 s"),
        absolute("start/ready", ready, once(found.ready), at_most=1.0, target="<= 1 s"),
        absolute("start/memory", memory, once(found.memory / 1e6), at_most=100, target="<= 100 MB", unit="MB"),
    ]
