"""What must hold after each run, whatever happened: compared with the same steps in a pipeline without any fault."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from monitor.alarm.figures import own
from monitor.sidecar.config.load import assemble
from monitor.sidecar.events import Evaluate, Message
from monitor.types import Instant, Judged
from tests.faults.expected import LATER, Expected, Heard, compare
from tests.simulation.scene import RATE, Scene

Key = tuple[str, str, Any, int]
"""Agent, formula, episode, seq."""

ALERTS = "cfmon/alerts/"
FLIGHT = 1.1
"""Seconds that what was sent may still be on its way when its connection ends, at most."""

MOST = 5
"""Problems of one kind that are named."""


def undisturbed(config: Path, log: Iterable[tuple[str, bytes]], agents: int) -> tuple[Expected, dict[Key, Judged]]:
    """Return alerts and verdicts of a pipeline that gets each step at once, and evaluates it at once."""
    pipeline = assemble(config).pipeline("expected")
    found, judged = Expected(), dict[Key, Judged]()
    now = Instant(0.0, 0.0)
    for agent, payload in log:
        now = Instant(0.0, found.steps / (agents * RATE))
        pipeline.step(Message(now, f"agents/{agent}/steps", payload))
        found.steps += 1
        if found.steps % agents == 0:
            _take(found, judged, pipeline.step(Evaluate(now)))
    _take(found, judged, pipeline.step(Evaluate(now)))
    _take(found, judged, pipeline.step(Evaluate(Instant(0.0, now.ticks + LATER))))
    return found, judged


def _take(found: Expected, judged: dict[Key, Judged], effects: Any) -> None:  # noqa: ANN401 - of the pipeline
    found.take(effects)
    judged.update(
        ((notice.agent, notice.formula, notice.episode, notice.seq), notice)
        for notice in effects.notices
        if isinstance(notice, Judged)
    )


def check(scene: Scene) -> list[str]:
    """Return what does not hold after a run that has settled; the sidecar still runs."""
    expected, judged = undisturbed(scene.sidecar.folder / "config.yaml", scene.log, len(scene.agents))
    heard = list(_heard(scene))
    faults = [(at, at + FLIGHT) for at in scene.world.disturbed]
    return [
        *compare(expected, heard, faults, late=True).problems[:MOST],
        *_verdicts(judged, scene.sidecar.judged),
        *_retained(expected, scene),
        *_evidence(scene),
        *_posts(scene, heard),
        *_status(scene, "online"),
        *_shown(scene, expected, judged),
    ]


def _heard(scene: Scene) -> Iterator[Heard]:
    """Yield the alerts that the broker took, as if sent when the first copy arrived: the sidecar's clock may jump."""
    first: dict[tuple[str, int], dict[bytes, float]] = defaultdict(dict)
    for at, message in scene.heard:
        if message.topic.startswith(ALERTS) and message.payload:
            alert = json.loads(message.payload)
            several = first[alert["id"], alert["revision"]]
            sent = several.setdefault(message.payload, at + 1e-6 * len(several))
            yield Heard(at, message.topic, json.dumps({**alert, "sent": sent, "sent_unix": sent}).encode())


def check_removed(scene: Scene, formula: str) -> list[str]:
    """Return what does not hold after a formula was removed: the broker retains nothing of it."""
    return [f"retained, and removed: {topic}" for topic in scene.broker.retained if topic.endswith(f"/{formula}")]


def check_end(scene: Scene) -> list[str]:
    """Return what does not hold after the sidecar has ended in order."""
    return _status(scene, "offline")


def _verdicts(wanted: Mapping[Key, Judged], found: Mapping[Key, Judged]) -> list[str]:
    """Every verdict is reached, none is extra, and the numbers are the same to the bit."""
    problems = [f"no verdict, and no reason: {key}" for key in wanted if key not in found][:MOST]
    problems += [f"a verdict of nothing that happened: {key}" for key in found if key not in wanted][:MOST]
    wrong = [
        f"the verdict {key} is {own(found[key].verdict)}, not {own(judged.verdict)}"
        for key, judged in wanted.items()
        if key in found and own(found[key].verdict) != own(judged.verdict)
    ]
    return problems + wrong[:MOST]


def _shown(scene: Scene, expected: Expected, judged: Mapping[Key, Judged]) -> list[str]:
    """The page has shown no verdict and no alarm that is not in the reference."""
    verdicts = {(agent, formula, seq, own(each.verdict)[0]) for (agent, formula, _, seq), each in judged.items()}
    alarms = {(alert["id"], alert["state"]) for alert in expected.alerts}
    return [
        *[f"the page has shown the verdict {each}, which was none" for each in scene.reader.verdicts - verdicts][:MOST],
        *[f"the page has shown the alarm {each}, which was none" for each in scene.reader.alarms - alarms][:MOST],
    ]


def _retained(expected: Expected, scene: Scene) -> list[str]:
    """The broker retains the last alert of each topic, unless it lost it itself in a crash."""
    last = {alert["topic"]: alert for alert in expected.alerts}
    problems = []
    for topic, alert in last.items():
        message = scene.broker.retained.get(topic)
        found = None if message is None else json.loads(message.payload)
        if (
            found is None or (found["id"], found["state"]) != (alert["id"], alert["state"])
        ) and not scene.broker.losses:
            problems.append(f"retained on {topic}: {found and found['state']}, not {alert['state']} of {alert['id']}")
    problems += [
        f"retained, and never said: {topic}"
        for topic in scene.broker.retained
        if topic.startswith(ALERTS) and topic not in last
    ]
    return problems[:MOST]


def _evidence(scene: Scene) -> list[str]:
    """The evidence of every alert is there."""
    service = scene.sidecar.service
    assert service is not None
    assert service.store is not None
    alerts = [json.loads(m.payload) for _, m in scene.heard if m.topic.startswith(ALERTS) and m.payload]
    problems = [f"no evidence is named: {alert['id']}" for alert in alerts if alert["evidence"] is None]
    names = dict.fromkeys(alert["evidence"]["id"] for alert in alerts if alert["evidence"] is not None)
    problems += [f"no evidence {name}" for name in names if service.store.read_evidence(name) is None]
    return problems[:MOST]


def _posts(scene: Scene, heard: Iterable[Heard]) -> list[str]:
    """Each receiver has every change that it wants, those of an agent in order, and again only where it must."""
    changes: dict[str, dict[str, Any]] = {}
    for message in heard:
        alert = json.loads(message.payload)
        changes.setdefault(f"{alert['id']}-{alert['revision']}", alert)
    problems = []
    for receiver in scene.receivers.all.values():
        settings = scene.config["webhooks"][receiver.name]
        wanted: dict[str, list[str]] = defaultdict(list)
        for event, alert in changes.items():
            news = settings["revisions"] or alert["revision"] == 1 or alert["state"] != "firing"
            if news and alert["severity"] in settings.get("severities", (alert["severity"],)):
                wanted[alert["agent"]].append(event)
        taken: dict[str, list[str]] = defaultdict(list)
        for event in dict.fromkeys(receiver.taken):
            taken[changes[event]["agent"] if event in changes else "?"].append(event)
        problems += [
            f"{receiver.name} has {taken[agent]} of {agent}, not {wanted[agent]}"
            for agent in sorted(wanted.keys() | taken.keys())
            if taken[agent] != wanted[agent]
        ]
        again = sum(count - 1 for count in Counter(receiver.taken).values())
        if again > receiver.uncertain + scene.sidecar.kills:
            problems.append(f"{receiver.name} has {again} posts again, after {receiver.uncertain} without an answer")
    return problems[:MOST]


def _status(scene: Scene, state: str) -> list[str]:
    message = scene.broker.retained.get("cfmon/status/sidecar")
    found = "nothing" if message is None else json.loads(message.payload)["state"]
    return [] if found == state else [f"the status is {found}, not {state}"]
