"""`cfmon report`: how good are the forecasts and alarms of a configuration on the recordings made with it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monitor.cli.output import print_json, progress, say
from monitor.cli.recorded_inputs import many
from monitor.cli.report_page import Page, check_reports, write_page
from monitor.errors import InputError, RecordingError, printable

if TYPE_CHECKING:
    from monitor.arrays import Bools
    from monitor.authoring.proposal.assessment import Assessment
    from monitor.authoring.proposal.replayed import Event, Replay
    from monitor.model.mdp import MDP
    from monitor.sidecar.config.load import Loaded
    from monitor.types.specs import FormulaSpec
    from monitor.types.stream_events import Instant, Observation
    from monitor.types.verdicts import RestsOn


def report(
    config: Annotated[Path, typer.Argument(help="configuration file (YAML)")],
    recordings: Annotated[
        list[Path], typer.Argument(metavar="RECORDING...", help="written by `cfmon run --record`, in order")
    ],
    *,
    out: Annotated[
        list[Path] | None, typer.Option("--out", "-o", metavar="FILE", help="page: .html or .md; may be repeated")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Judge a running configuration by its recordings: forecasts beside outcomes, alarms and how early they were.

    Replay the steps through the configuration's formulas. If states are hidden, compare the belief with the true state
    at the steps that have a `state` beside their `observation`. Exit code: 0; 1 if the forecasts of a formula are no
    better than the base rate, or if the belief is wrong.
    """
    from monitor.authoring.proposal.replayed import Replay, with_forecasts  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.cli.model_verdict import page_of, say_verdict  # noqa: PLC0415 - likewise
    from monitor.model.mdp import MDP  # noqa: PLC0415 - likewise
    from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - likewise

    check_reports(out or [])
    with progress("reading the configuration, the model and the policies"):
        loaded = assemble(config)
    if isinstance(loaded.model, MDP) and loaded.model.emissions is not None:
        _report_belief(config, recordings, loaded, loaded.model, out or [], as_json=as_json)
        return
    specs, events = with_forecasts(loaded.formulas)
    replay = Replay(loaded.with_formulas(specs).monitor, _reader(loaded))
    for recording in recordings:
        replay.take(_observations(recording, loaded))
    if not replay.states:
        raise RecordingError(f"{recordings[0]}: holds no step of this configuration's model on {loaded.topics.steps}")
    bases = loaded.monitor.rests_on()
    found = [
        (spec.name, _assessed(spec, events.get(spec.name), replay, loaded, bases[spec.name]))
        for spec in loaded.formulas
    ]
    about = (
        f"Replayed {many(len(replay.states), 'step')} of {many(len(replay.paths), 'path')} from "
        f"{', '.join(map(str, recordings))}; {many(replay.refused, 'step')} that the model does not have left out."
    )
    write_page(page_of(found, f"{config}", about), out or [])
    if as_json:
        print_json({"steps": len(replay.states), "formulas": [_document(name, each) for name, each in found]})
    else:
        say(about)
        for name, each in found:
            say_verdict(name, each)
        for path in out or []:
            say(str(path))
    if any(each.refused for _, each in found):
        raise typer.Exit(1)


def _report_belief(
    config: Path, recordings: Sequence[Path], loaded: Loaded, model: MDP, out: Sequence[Path], *, as_json: bool
) -> None:
    """Report on the belief about the hidden states of a model."""
    from msgspec import to_builtins  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.proposal.belief_calibration import BeliefRecord  # noqa: PLC0415 - likewise
    from monitor.cli.model_verdict import belief_section, belief_sentence  # noqa: PLC0415 - likewise
    from monitor.hidden.hidden_checker import HiddenChecker  # noqa: PLC0415 - likewise

    record = BeliefRecord(HiddenChecker(model, loaded.tables, {}), loaded.monitor.settings)
    for recording in recordings:
        record.take(_observations(recording, loaded))
    found = record.calibration()
    if not found.steps:
        raise RecordingError(
            f"{recordings[0]}: holds no step on {loaded.topics.steps} whose true state is known; where states are "
            "hidden, send `state` beside `observation`, or write it into the recording"
        )
    about = (
        f"Compared the belief with the true state at {many(found.steps, 'step')} of {many(found.episodes, 'episode')} "
        f"from {', '.join(map(str, recordings))}; {many(found.unknown, 'step')} without a known state left out."
    )
    sentence = belief_sentence(found)
    write_page(Page(f"{config}", [sentence], about, [belief_section(found)], bad=not found.calibrated), out)
    if as_json:
        document = to_builtins(found) | {"calibrated": found.calibrated}
        for each in document["tenths"]:
            del each["every"]["interval"]  # too narrow, because neighbouring steps depend on each other
        print_json({"steps": found.steps, "belief": document})
    else:
        for line in (about, sentence, *map(str, out)):
            say(printable(line))
    if not found.calibrated:
        raise typer.Exit(1)


def _reader(loaded: Loaded) -> Any:  # noqa: ANN401 - a method of an adapter, whose states differ
    """Return a function that maps an observation to the model's own state."""
    from monitor.model.mdp import MDP  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.stream.model_adapter import ModelAdapter  # noqa: PLC0415 - likewise
    from monitor.stream.world_adapter import WorldAdapter  # noqa: PLC0415 - likewise

    settings, model = loaded.monitor.settings, loaded.model
    adapter = (
        ModelAdapter(model, settings, None)
        if isinstance(model, MDP)
        else WorldAdapter(model, settings, loaded.tables["nominal"])
    )
    return lambda observation: adapter.read(observation)[0]


def _observations(path: Path, loaded: Loaded) -> Iterator[tuple[Observation, Instant]]:
    """Yield the steps of a recording. Raises RecordingError if the file is not a recording."""
    from monitor.sidecar.events import Message  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.recordings import open_recording  # noqa: PLC0415 - likewise
    from monitor.stream.decode import agent_of, decode  # noqa: PLC0415 - likewise

    limit = loaded.config.limits.message_bytes
    with open_recording(path) as events, progress(f"replaying {path}", total=events.size) as bar:
        for event in events:
            if isinstance(event, Message):
                try:
                    step = decode(agent_of(event.topic, loaded.topics.steps), event.payload, limit)
                except InputError:
                    continue  # another topic, or not a step; the monitor counts these
                yield step, event.now
            bar.at(events.position)


def _assessed(
    spec: FormulaSpec, event: Event | None, replay: Replay, loaded: Loaded, bases: Mapping[str, RestsOn]
) -> Assessment:
    """Return the verdict on a formula. `bases`: the recordings on which the formula's values rest."""
    from monitor.authoring.proposal.assessment import Assessment  # noqa: PLC0415 - keep `cfmon --help` light

    if event is None:
        problem = "its goal is not of the form P>=p [ G<=h CONDITION ], so what its alarms warn of is not known"
        return Assessment(spec.name, (), bases=bases, unjudged=(problem,))
    unsafe = _unsafe(event, replay.states, loaded)
    skill = replay.skill(event, unsafe)
    unjudged = ["what the past still tells, which the running monitor tests (model_doubt)"]
    if not skill.known:
        unjudged.insert(0, f"forecasts, as {event.name!r} always or never came")
    return Assessment(
        event.name, (skill,), bases=bases, alarms=replay.rates(spec, event, unsafe),
        horizon=event.horizon, day=replay.day, unjudged=tuple(unjudged), held_out=False,
    )  # fmt: skip


def _unsafe(event: Event, states: Sequence[Any], loaded: Loaded) -> Bools:
    """Return for each state whether the condition of an event holds in it, [n]."""
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.proposal.replayed import holds  # noqa: PLC0415 - likewise
    from monitor.model.mdp import MDP  # noqa: PLC0415 - likewise

    model = loaded.model
    if isinstance(model, MDP):
        return np.broadcast_to(holds(event.condition, lambda label: model.labels[label][list(states)]), len(states))
    numbers = np.array(states, np.float64)
    return np.broadcast_to(holds(event.condition, lambda label: model.holds(label, numbers)), len(states))


def _document(name: str, found: Assessment) -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.cli.model_verdict import verdict  # noqa: PLC0415 - likewise

    counts = None if found.alarms is None else found.alarms.measured
    return {
        "formula": name,
        "verdict": verdict(found),
        "refused": found.refused,
        "forecasts": [asdict(each) for each in found.skills],
        "alarms": None
        if counts is None
        else {
            "alarms": counts.alarms, "false": counts.false, "events": counts.events, "preceded": counts.preceded,
            "leads": list(counts.leads), "steps": counts.steps, "steps a day": found.day,
        },
    }  # fmt: skip
