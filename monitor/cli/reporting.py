"""`cfmon report`: how good are the forecasts and alarms of a configuration on the recordings made with it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from monitor.cli.output import print_json, progress, say
from monitor.cli.recorded_inputs import many
from monitor.cli.report_page import check_reports, write_page
from monitor.errors import InputError, RecordingError

if TYPE_CHECKING:
    from monitor.arrays import Bools
    from monitor.authoring.proposal.belief_calibration import BeliefCalibration, BeliefRecord
    from monitor.authoring.proposal.model_quality import ModelQuality
    from monitor.authoring.proposal.paths import Shown
    from monitor.authoring.proposal.replayed import AvoidedEvent, Replay
    from monitor.sidecar.config.load import Loaded
    from monitor.types.specs import FormulaSpec
    from monitor.types.stream_events import Instant, Observation
    from monitor.types.verdicts import RestsOn

NOT_SHOWN: Final = (
    "forecasts and alarms, as it is never known whether {!r} held: states are hidden, no true `state` was recorded, "
    "and no observation decides it"
)
NOT_KNOWN: Final = (
    "{} at which it is not known whether {!r} held, and the forecasts that reach such a step, and {} near one"
)


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

    Replay the steps through the configuration's formulas. If states are hidden, outcomes are known at the steps that
    have a true `state` beside their `observation`, or whose observation decides the goal; the belief is compared with
    these states. Exit code: 0; 1 if the forecasts of a formula are no
    better than the base rate, or if the belief is wrong.
    """
    from monitor.authoring.proposal.replayed import Replay, with_forecasts  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.cli.quality_report import (  # noqa: PLC0415 - likewise
        belief_about,
        belief_sentence,
        page_of,
        say_quality,
        with_belief,
    )
    from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - likewise

    check_reports(out or [])
    with progress("reading the configuration, the model and the policies"):
        loaded = assemble(config)
    record = _belief_record(loaded)
    specs, events = with_forecasts(loaded.formulas)
    reader = _reader(loaded) if record is None else record.read
    replay = Replay(loaded.with_formulas(specs).monitor, reader)
    for recording in recordings:
        for step in _observations(recording, loaded):
            replay.take([step])
            if record is not None:
                record.take([step])
    if not replay.states:
        raise RecordingError(f"{recordings[0]}: holds no step of this configuration's model on {loaded.topics.steps}")
    bases = loaded.monitor.rests_on()
    found = [
        (spec.name, _assessed(spec, events.get(spec.name), replay, loaded, bases[spec.name]))
        for spec in loaded.formulas
    ]
    belief = None if record is None else record.calibration()
    if belief is not None and not belief.steps and not any(each.skills for _, each in found):
        raise RecordingError(
            f"{recordings[0]}: holds no step on {loaded.topics.steps} whose true state is known; where states are "
            "hidden, send `state` beside `observation`, or write it into the recording"
        )
    about = (
        f"Replayed {many(len(replay.states), 'step')} of {many(len(replay.paths), 'path')} from "
        f"{', '.join(map(str, recordings))}; {many(replay.refused, 'step')} that the model does not have left out."
    )
    about += "" if belief is None else f" {belief_about(belief)}"
    page = page_of(found, f"{config}", about)
    write_page(page if belief is None else with_belief(page, belief), out or [])
    if as_json:
        document = {"steps": len(replay.states), "formulas": [_document(name, each) for name, each in found]}
        print_json(document if belief is None else document | {"belief": _belief_document(belief)})
    else:
        say(about)
        if belief is not None:
            say(belief_sentence(belief))
        for name, each in found:
            say_quality(name, each)
        for path in out or []:
            say(str(path))
    if any(each.refused for _, each in found) or (belief is not None and not belief.calibrated):
        raise typer.Exit(1)


def _belief_record(loaded: Loaded) -> BeliefRecord | None:
    """Return an empty record of beliefs; None if the model's states are not hidden."""
    from monitor.authoring.proposal.belief_calibration import BeliefRecord  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.hidden.hidden_checker import HiddenChecker  # noqa: PLC0415 - likewise
    from monitor.model.mdp import MDP  # noqa: PLC0415 - likewise

    if not isinstance(loaded.model, MDP) or loaded.model.emissions is None:
        return None
    return BeliefRecord(HiddenChecker(loaded.model, loaded.tables, {}), loaded.monitor.settings)


def _belief_document(found: BeliefCalibration) -> dict[str, Any]:
    from msgspec import to_builtins  # noqa: PLC0415 - keep `cfmon --help` light

    document: dict[str, Any] = to_builtins(found) | {"calibrated": found.calibrated}
    for each in document["tenths"]:
        del each["every"]["interval"]  # too narrow, because neighbouring steps depend on each other
    return document


def _reader(loaded: Loaded) -> Callable[[Observation], Any]:
    """Return a function that maps an agent's message to the model's own state."""
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
    from monitor.sidecar.recording_formats import open_recording  # noqa: PLC0415 - likewise
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
    spec: FormulaSpec, event: AvoidedEvent | None, replay: Replay, loaded: Loaded, bases: Mapping[str, RestsOn]
) -> ModelQuality:
    """Return the quality of the model and of a formula. `bases`: the recordings on which the formula's values rest."""
    from monitor.authoring.proposal.model_quality import ModelQuality  # noqa: PLC0415 - keep `cfmon --help` light

    if event is None:
        problem = "its goal is not of the form P>=p [ G<=h CONDITION ], so what its alarms warn of is not known"
        return ModelQuality(spec.name, (), bases=bases, unjudged=(problem,))
    unsafe, shown = _unsafe(event, replay.states, loaded)
    skill = replay.skill(event, unsafe, shown)
    unjudged = ["what the past still tells, which the running monitor tests (model_doubt)"]
    rates = replay.rates(spec, event, unsafe, shown)
    if shown is not None:
        if not shown.known.any():
            return ModelQuality(spec.name, (), bases=bases, unjudged=(NOT_SHOWN.format(event.name),))
        lost, near = int((~shown.known).sum()), replay.fired(spec) - rates.measured.alarms
        unjudged += [NOT_KNOWN.format(many(lost, "step"), event.name, many(near, "alarm"))] if lost else []
    if not skill.known:
        unjudged.insert(0, f"forecasts, as {event.name!r} always or never came")
    return ModelQuality(
        event.name, (skill,), bases=bases, alarms=rates,
        horizon=event.horizon, day=replay.day, unjudged=tuple(unjudged), held_out=False,
    )  # fmt: skip


def _unsafe(event: AvoidedEvent, states: Sequence[Any], loaded: Loaded) -> tuple[Bools, Shown | None]:
    """Return for each state whether the condition of an event holds in it, [n].

    If states are hidden, also return where the recordings show whether the condition holds.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.proposal.replayed import holds, shown_in  # noqa: PLC0415 - likewise
    from monitor.model.mdp import MDP  # noqa: PLC0415 - likewise

    model = loaded.model
    if isinstance(model, MDP):
        every = np.broadcast_to(holds(event.condition, model.labels.__getitem__), model.states)
        return (every[list(states)], None) if model.emissions is None else shown_in(states, every, model.emissions)
    numbers = np.array(states, np.float64)
    return np.broadcast_to(holds(event.condition, lambda label: model.holds(label, numbers)), len(states)), None


def _document(name: str, found: ModelQuality) -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.cli.quality_report import quality_lines  # noqa: PLC0415 - likewise

    counts = None if found.alarms is None else found.alarms.measured
    return {
        "formula": name,
        "verdict": quality_lines(found),
        "refused": found.refused,
        "forecasts": [asdict(each) for each in found.skills],
        "alarms": None
        if counts is None
        else {
            "alarms": counts.alarms, "false": counts.false, "events": counts.events, "preceded": counts.preceded,
            "leads": list(counts.leads), "steps": counts.steps, "steps a day": found.day,
        },
    }  # fmt: skip
