"""Parts of `cfmon init`: the model and its paths, the policies, the measurement. Written to a folder as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from monitor.atomic import hidden_folder
from monitor.cli.comparing import verdict_of
from monitor.cli.exporting import warn_of_pickles
from monitor.cli.init_files import config_text, takeover_text, written_policy, written_sample
from monitor.cli.init_move import move_files
from monitor.cli.output import progress, warned
from monitor.cli.recorded_inputs import (
    ENCODERS,
    new_learner,
    notes_on_rows,
    open_recording,
    read_into,
    reading,
    recorded_files,
    show_roles,
    with_function,
    with_sizes,
)
from monitor.errors import ConfigError, ModelError, MonitorError
from monitor.types import AlarmSpec

if TYPE_CHECKING:
    from monitor.arrays import Floats
    from monitor.authoring.learning.learner import Learner
    from monitor.authoring.proposal.hold import Guarded
    from monitor.authoring.proposal.measure import Measured
    from monitor.authoring.proposal.paths import Collected, RecordedPath
    from monitor.model.mdp import MDP

FEW: Final = 5
"""Unsafe events that the held-out paths need, for the measurement to use them alone."""

FILES: Final = ("model.npz", "model.learn.npz", "nominal.onnx", "nominal.yaml", "fallback.onnx", "fallback.yaml",
                "config.yaml", "takeover.yaml", "sample.rec")  # fmt: skip


@dataclass(frozen=True)
class InitRequest:
    """What the user gave. `roles`, `said`: options of `cfmon model learn`. `steps`: most steps to measure on.

    `accept`: go on with a model that forecasts no better than the frequency.

    `offset`, `alarm`: of every candidate formula.
    """

    folder: Path
    recordings: tuple[Path, ...]
    simulator: str | None
    unsafe: str | None
    nominal: str | None
    fallback: str | None
    roles: dict[str, Any]
    said: dict[str, Any]
    topic: str
    steps: int
    seed: int
    offset: int
    alarm: AlarmSpec
    force: bool
    quiet: bool
    accept: bool = False


@dataclass(frozen=True)
class InitResult:
    """What was written and measured.

    `sample`: a recorded path with an alarm was written. `guards`: what a guard would do; `hold`: proposed from it.
    """

    folder: Path
    states: int
    actions: int
    notes: list[str]
    measured_on: str
    rows: Sequence[Measured]
    best: Measured
    rule: str
    files: Sequence[str]
    sample: bool
    guards: Sequence[Guarded]
    hold: int | None


@dataclass
class _Base:
    """A model, and what it is measured with.

    Attributes:
        model: the model to write. before: the model without the paths that it is measured on; the same states.
        paths: of the agent, or empty: they are simulated once its policy is known.
        measured_on: the paths, in words. encoder: of states. label: what is unsafe.
    """

    model: MDP
    before: MDP
    paths: list[RecordedPath]
    measured_on: str
    encoder: str
    label: str
    notes: list[str] = field(default_factory=list)


def columns_of(request: InitRequest) -> tuple[str, ...]:
    """Return the names of the columns of the first recording."""
    return open_recording(recorded_files(request.recordings)[0], request.topic).names()


def prepared(request: InitRequest) -> InitResult:
    """Write the folder and return what is in it. After an error it is as it was."""
    from monitor.authoring.policy_export.original import ExportRequest as PolicyRequest  # noqa: PLC0415 - keep `cfmon --help` light

    present = [name for name in FILES if (request.folder / name).exists()]
    if present and not request.force:
        raise ConfigError(f"{request.folder / present[0]} already exists; choose another folder, or give --force")
    parent = request.folder.absolute().parent
    if not parent.is_dir():
        raise ConfigError(f"{request.folder}: there is no folder {parent}; make it first")
    if request.folder.exists() and not request.folder.is_dir():
        raise ConfigError(f"{request.folder} is a file; give a folder")
    given = (request.nominal, request.fallback)
    warn_of_pickles(*(PolicyRequest(source) for source in given if source is not None))
    try:
        with hidden_folder(parent) as staging:
            result, sampled = _built(request, staging)
            # `sampled` comes last: a recording names the configuration by a digest over its absolute paths
            files = move_files(staging, request.folder, FILES, sampled)
    except OSError as error:
        raise ConfigError(f"{error.filename or request.folder}: cannot be written: {error.strerror}") from error
    return replace(result, files=[*files, *(["sample.rec"] if result.sample else [])])


def _built(request: InitRequest, staging: Path) -> tuple[InitResult, Callable[[], None]]:
    from monitor.authoring.proposal.hold import guarded, proposed  # noqa: PLC0415 - likewise
    from monitor.authoring.proposal.measure import measured  # noqa: PLC0415 - likewise
    from monitor.authoring.proposal.rules import candidates, chosen, horizon_of  # noqa: PLC0415 - likewise
    from monitor.model.io import save_model  # noqa: PLC0415 - keep `cfmon --help` light

    base = _simulated(request) if request.simulator else _learned(request, staging)
    save_model(base.model, staging / "model.npz")
    unsafe = base.model.labels[base.label]
    nominal, before = _nominal(request, base, staging)
    if not base.paths:
        base.paths = _episodes(request, base, nominal)
    horizon = horizon_of(base.paths, unsafe)
    policies = {"nominal": before, "fallback": _fallback(request, base, (nominal, before), horizon, staging)}
    total = sum(len(path.states) for path in base.paths)
    with progress("measuring candidate formulas", total=total) as bar, warned():
        rows = measured(
            base.before, policies, candidates(horizon, base.label, request.offset, request.alarm), base.paths, bar.at
        )
    best, rule = chosen(rows)
    _configure(request, base, best, staging)
    guards = guarded(base.before, policies, best.candidate, base.paths)
    hold = proposed(guards)
    (staging / "takeover.yaml").write_text(takeover_text(base.label, guards, hold), "utf-8")

    def sampled() -> None:
        if best.first is not None:
            written_sample(base.paths[best.first], base.model, base.encoder, request.folder, request.topic)

    if not any(row.events for row in rows):
        base.notes.append(f"WARNING: no step of the paths measured enters {base.label!r}; the threshold is a guess")
    result = InitResult(
        request.folder, base.model.states, base.model.actions, base.notes, base.measured_on, rows, best, rule, (),
        sample=best.first is not None, guards=guards, hold=hold,
    )  # fmt: skip
    return result, sampled


def _learned(request: InitRequest, staging: Path) -> _Base:
    """Learn the model of the recordings, and the one of the paths that are not held out."""
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.learning.abstraction_scores import Outcomes  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.companion import companion_of, save_learner  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.conditions import parsed  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.row_files import digest_of  # noqa: PLC0415 - likewise
    from monitor.authoring.proposal.paths import Collected  # noqa: PLC0415 - likewise

    assert request.unsafe is not None
    label = parsed(request.unsafe).name
    paths = recorded_files(request.recordings)
    sources = [open_recording(path, request.topic) for path in paths]
    said = request.said | {"unsafe": [request.unsafe]}
    learner, compared = new_learner(sources, staging / "model.npz", request.roles, said, request.seed)
    sources = [with_function(source, learner.function) for source in sources]
    if not request.quiet:
        show_roles(learner.roles.lines(), sources, compared)
    kept = Collected(
        request.seed, outcomes=Outcomes(request.seed, np.array([each.unsafe for each in learner.labels], np.bool_))
    )
    with reading("counting", sources) as bar:
        for source, before in with_sizes(sources):
            read_into(learner, source, bar, before, kept)
            learner.files.append(digest_of(source.path))
    save_learner(learner, companion_of(staging / "model.npz"))
    assert learner.states is not None
    judgement = _judgement(request, learner, kept, label)
    base = _split(request, learner, kept, ENCODERS[learner.states.kind], label)
    base.notes += judgement
    base.notes += [verdict_of(compared)] if compared else []
    return base


def _judgement(request: InitRequest, learner: Learner, kept: Collected, label: str) -> list[str]:
    """Return what a report on the model says first. ModelError if its forecasts are worth nothing, unless accepted."""
    from monitor.authoring.learning.abstraction_scores import CandidateAbstraction, judged  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.separation import lacking  # noqa: PLC0415 - likewise

    assert kept.outcomes is not None
    with progress("judging the model"):
        found, known = judged(
            CandidateAbstraction(str(request.folder / "model.npz"), learner, kept), kept.outcomes, label
        )
    problems = [*lacking(learner), *found.problems]
    if known and found.score >= 1.0:
        problem = (
            f"on held-out recordings the model forecasts {label!r} no better than its frequency (squared error "
            f"{found.score:.2f} times that of the frequency)"
        )
        if not request.accept:
            raise ModelError(
                f"{problem}, so a formula on it would be a guess. Give other states (--abstraction auto compares some; "
                "--bins; more columns with --state) or more recordings; `cfmon model learn ... --report model.html` "
                "shows what is wrong. To go on with this model: --accept-model"
            )
        return [f"the model is NOT good enough: {problem}", *problems]
    if problems:
        return [f"the model is NOT good enough: {problems[0]}", *problems[1:]]
    said = f"squared error of its forecasts {found.score:.2f} times that of the frequency" if known else ""
    lacks = f"{label!r} always or never happens on held-out recordings, so forecasts of it are not judged"
    return [f"the model is good enough by the checks of `cfmon model learn --report`: {said or lacks}"]


def _split(request: InitRequest, learner: Learner, kept: Collected, encoder: str, label: str) -> _Base:
    """Measure on held-out paths, unless they have too few unsafe events and all paths have more."""
    from monitor.authoring.learning.learned_model import built  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.states import numbered  # noqa: PLC0415 - likewise
    from monitor.authoring.proposal.paths import first_steps, paths_of, unsafe_events  # noqa: PLC0415 - likewise

    assert learner.states is not None
    assert learner.actions is not None
    model = learner.model(str(request.folder / "model.npz"))
    where = learner.where()
    held, every = paths_of(kept.held(), where), paths_of(kept.every(), where)
    unsafe = model.labels[label]
    events = [sum(len(unsafe_events(path, unsafe)) for path in first_steps(part, request.steps) if part)
              for part in (held, every) if part]  # fmt: skip
    notes = [f"learned from {learner.tally.draws:,} transitions; {label!r} holds in {int(unsafe.sum()):,} states"]
    notes += notes_on_rows(learner)
    if held and kept.train.draws and (events[0] >= FEW or events[0] >= events[-1]):
        train = replace(kept.train, visited=learner.tally.visited)
        before = built(
            train,
            (learner.states, learner.actions),
            numbered(train, learner.states),
            learner.labels,
            prior=learner.prior,
            source="held out",
            late=learner.runs_on,
        )
        if before.states == model.states:
            return _Base(model, before, first_steps(held, request.steps), _words(held, request, "held-out recordings; "
                         "for this, the model was learned without them"), encoder, label, notes)  # fmt: skip
    return _Base(model, model, first_steps(every, request.steps), _words(every, request, "the recordings that the "
                 "model was learned from, as too few are held out: the figures are optimistic"), encoder, label,
                 notes)  # fmt: skip


def _words(paths: Sequence[RecordedPath], request: InitRequest, what: str) -> str:
    from monitor.authoring.proposal.paths import first_steps  # noqa: PLC0415 - keep `cfmon --help` light

    used = first_steps(paths, request.steps)
    return f"{sum(len(path.actions) for path in used):,} steps in {len(used):,} paths of {what}"


def _simulated(request: InitRequest) -> _Base:
    """Explore the simulator; a Gymnasium environment with a table of probabilities is read as `model convert` does."""
    from monitor.model.io import load_model  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.model.label_conditions import labelled  # noqa: PLC0415 - likewise

    assert request.simulator is not None
    assert request.unsafe is not None
    label = request.unsafe.partition(":")[0].strip()
    condition = () if ":" not in request.unsafe else (request.unsafe,)
    notes: list[str] = []
    with progress(f"exploring {request.simulator}") as bar:
        table = None
        if request.simulator.startswith("gymnasium:"):
            table = _or_none(lambda: load_model(str(request.simulator)))
        model = labelled(table, condition) if table is not None else _explored(request, condition, notes, bar.at)
    if label not in model.labels:
        known = ", ".join(model.labels) or "none"
        raise ModelError(f"--unsafe {label}: the model has no such label ({known}); write NAME: CONDITION")
    if model.initial is None:
        raise ModelError(f"{request.simulator}: it has no initial distribution, so no episode can be simulated")
    notes.append(f"{label!r} holds in {int(model.labels[label].sum()):,} states")
    return _Base(model, model, [], "", "index", label, notes)


def _or_none(read: Callable[[], MDP]) -> MDP | None:
    try:
        return read()
    except ModelError:
        return None  # it has no table: exploring says what is wrong with it, if anything is


def _explored(request: InitRequest, conditions: tuple[str, ...], notes: list[str], report: Callable[..., None]) -> MDP:
    from monitor.authoring.exploration.enumeration import ExplorationSettings, explore  # noqa: PLC0415 - keep `cfmon --help` light

    found = explore(
        str(request.simulator),
        ExplorationSettings(seed=request.seed, conditions=(*conditions, *request.said["label"])),
        lambda done, known: report(done, f"exploring: {done:,} of {known:,} states") if done % 100 == 0 else None,
    )
    notes += found.notes
    return found.model


def _episodes(request: InitRequest, base: _Base, nominal: Floats) -> list[RecordedPath]:
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.proposal.paths import simulated  # noqa: PLC0415 - likewise

    paths = simulated(base.model, nominal, request.steps, np.random.default_rng(request.seed))
    if not paths:
        raise ModelError(f"{request.simulator}: its episodes end where they start; nothing can be measured")
    base.measured_on = _words(paths, request, "episodes of the agent's policy, simulated in the model")
    return paths


def _nominal(request: InitRequest, base: _Base, staging: Path) -> tuple[Floats, Floats]:
    """Write the agent's policy; return it [S, A], and the one to measure with."""
    from monitor.authoring.proposal.policies import action_frequencies  # noqa: PLC0415 - keep `cfmon --help` light

    if request.nominal is not None:
        table = written_policy(request.nominal, "nominal", base.model, staging, base.notes)
        return table, table
    frequencies, seen = action_frequencies(base.model)
    base.notes.append(
        f"nominal: ESTIMATED from the recordings, the frequency of each action in each state ({int(seen.sum()):,} of "
        f"{base.model.states:,} states have data, the others get all actions alike); --nominal gives the agent's own"
    )
    written_policy(frequencies, "nominal", base.model, staging, [])
    return frequencies, action_frequencies(base.before)[0]


def _fallback(request: InitRequest, base: _Base, nominal: tuple[Floats, Floats], horizon: int, staging: Path) -> Any:  # noqa: ANN401 - a policy of any form
    """Write the fallback; return the one to measure with."""
    from monitor.authoring.proposal.policies import constant_policy, safest_policy  # noqa: PLC0415 - likewise
    from monitor.model.encode import encode_action  # noqa: PLC0415 - keep `cfmon --help` light

    given = request.fallback
    if given is not None and given.startswith("do(") and given.endswith(")"):
        name = given[3:-1].strip()
        try:
            action = encode_action(base.model, int(name) if name.isdigit() else name)
        except MonitorError as error:
            raise ConfigError(f"--fallback {given}: {error}") from error
        base.notes.append(f"fallback: always {given}")
        return written_policy(constant_policy(base.model, action), "fallback", base.model, staging, [])
    if given is not None:
        return written_policy(given, "fallback", base.model, staging, base.notes)
    unsafe = base.model.labels[base.label]
    base.notes.append(
        f"fallback: a SUGGESTION, the actions that most probably avoid {base.label!r} for {horizon} steps by this "
        "model; it pursues no other goal and was never tried. Replace it by a policy that you trust (--fallback)"
    )
    written_policy(safest_policy(base.model, unsafe, horizon, nominal[0]), "fallback", base.model, staging, [])
    return safest_policy(base.before, base.before.labels[base.label], horizon, nominal[1])


def _configure(request: InitRequest, base: _Base, best: Measured, staging: Path) -> None:
    """Write a configuration that can be started; it says why, where bounds over causal models are left out."""
    from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - keep `cfmon --help` light

    file = staging / "config.yaml"
    with progress("checking the configuration"), warned():
        try:
            file.write_text(config_text(best, base.encoder, request.topic, base.measured_on), "utf-8")
            assemble(file, {})
        except MonitorError as error:
            why = " ".join(str(error).split())
            text = config_text(best, base.encoder, request.topic, base.measured_on, no_bounds=why)
            file.write_text(text, "utf-8")
            assemble(file, {})
