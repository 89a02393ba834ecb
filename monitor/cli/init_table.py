"""`cfmon init` with a table that is learned from recordings or explored: its policies and its measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace as spec_with

from monitor.cli.comparing import show_comparison
from monitor.cli.init_base import InitBase, InitRequest, chosen_paths, in_words, step_seconds
from monitor.cli.init_choices import recorded_choices, row_policy
from monitor.cli.init_files import final_state, sent_state, written_policy
from monitor.cli.learn_report import charts, sections
from monitor.cli.output import progress
from monitor.cli.recorded_inputs import (
    ENCODERS,
    new_learner,
    notes_on_bins,
    notes_on_rows,
    read_into,
    reading,
    rows_of,
    with_function,
    with_sizes,
)
from monitor.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from monitor.arrays import AnyArray, Floats
    from monitor.authoring.learning.abstraction_scores import Scored
    from monitor.authoring.learning.cross_fitting import Collected
    from monitor.authoring.learning.learner import Learner
    from monitor.authoring.learning.left_out import RowLimit
    from monitor.authoring.policy_export.given_policy import GivenPolicy
    from monitor.authoring.policy_export.original import Original
    from monitor.authoring.proposal.hold import Guarded
    from monitor.authoring.proposal.measure import CandidateFormula, Measured
    from monitor.authoring.proposal.paths import RecordedPath
    from monitor.model.action_names import ActionNames
    from monitor.model.mdp import MDP

MOST_STEPS: Final = 30_000
"""Largest number of steps that formulas are measured on, unless --steps gives another number."""

JUDGED: Final = 10_000
"""Number of simulated steps on which the forecasts of a simulator's table are judged."""


@dataclass
class TableBase(InitBase):
    """A table.

    `model`: the model that is written. `before`: the same states, learned without the paths that formulas are measured
    on. `policies`: policies for the measurement. `nominal`: the agent's policy [S, A] in `model`.
    """

    model: MDP = field(kw_only=True)
    before: MDP = field(kw_only=True)
    policies: dict[str, Any] = field(default_factory=dict)
    nominal: Floats | None = None

    @classmethod
    def of(cls, model: MDP, label: str, notes: list[str], encoder: str = "index") -> TableBase:
        """Return the base of a model, without paths."""
        counts = {"states": model.states, "actions": model.actions}
        unsafe = model.labels[label]
        return cls("model.npz", counts, encoder, label, unsafe, [], "", notes, model=model, before=model)

    @property
    def action_names(self) -> ActionNames:
        """The names of the actions."""
        return self.model.named_actions

    def write_nominal(self, request: InitRequest, staging: Path) -> None:
        """Write the agent's policy. If none is given, estimate it as the frequency of each action in each state."""
        from monitor.authoring.proposal.policies import action_frequencies  # noqa: PLC0415 - keep `cfmon --help` light

        if request.nominal is not None:
            self.nominal = self._given(request.nominal, "nominal", staging, request.limit)
            self.policies["nominal"] = self.nominal
        else:
            self.nominal, seen = action_frequencies(self.model)
            self.notes.append(
                "nominal: ESTIMATED from the recordings, the frequency of each action in each state "
                f"({int(seen.sum()):,} of {self.model.states:,} states have data, the others get all actions alike); "
                "--nominal gives the agent's own"
            )
            written_policy(self._table(self.nominal, "nominal"), "nominal", self.model, staging, [])
            self.policies["nominal"] = action_frequencies(self.before)[0]
        if not self.paths:
            self._simulate(request)

    def _simulate(self, request: InitRequest) -> None:
        """Simulate episodes of the agent's policy in the model, as the paths to measure on."""
        import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

        from monitor.authoring.proposal.paths import measured_paths, simulated  # noqa: PLC0415 - likewise
        from monitor.authoring.proposal.simulated_forecasts import judge_of  # noqa: PLC0415 - likewise

        assert self.nominal is not None
        rng = np.random.default_rng(request.seed)
        every = simulated(self.model, self.nominal, request.steps or MOST_STEPS, rng)
        self.paths = measured_paths(every, self.unsafe, request.steps, MOST_STEPS)
        if not self.paths:
            raise ModelError(f"{request.simulator}: its episodes end where they start; nothing can be measured")
        self.judge = judge_of(self.model, self.nominal, self.label, simulated(self.model, self.nominal, JUDGED, rng))
        what = "episodes of the agent's policy, simulated in the model"
        self.measured_on = in_words(self.paths, every, request.steps, what)

    def write_fallback(self, request: InitRequest, horizon: int, staging: Path) -> None:
        """Write the fallback. If none is given, suggest the safest policy of the model."""
        from monitor.authoring.proposal.policies import constant_policy, safest_policy  # noqa: PLC0415 - keep `cfmon --help` light

        found: AnyArray
        constant = constant_fallback(request.fallback, self.action_names)
        if constant is not None:
            self.notes.append(f"fallback: always {request.fallback}")
            found = written_policy(
                self._table(constant_policy(self.model, constant), "fallback"), "fallback", self.model, staging, []
            )
        elif request.fallback is not None:
            found = self._given(request.fallback, "fallback", staging, request.limit)
        else:
            self.notes.append(suggestion(self.label, horizon, "by this model"))
            safest = safest_policy(self.model, self.unsafe, horizon, self.nominal)
            written_policy(self._table(safest, "fallback"), "fallback", self.model, staging, [])
            unsafe = self.before.labels[self.label]
            found = safest_policy(self.before, unsafe, horizon, self.policies["nominal"])
        self.policies["fallback"] = found

    def _given(self, source: str, name: str, staging: Path, limit: RowLimit) -> Floats:
        """Write a policy that the user gives. If it sees columns of the recordings, call it on the recorded rows."""
        given = self.given.get(name)
        if given is None or not given.sees_columns:
            return written_policy(source, name, self.model, staging, self.notes)
        from monitor.authoring.learning.policy_choices import mixed_problem  # noqa: PLC0415 - keep `cfmon --help` light

        notes: list[str] = []
        original, share = row_policy(given, self.rows, self.model, notes, limit)
        self.problems += tuple(filter(None, [mixed_problem(name, share)]))
        self.notes += [f"{name}: {note}" for note in notes]
        return written_policy(original, name, self.model, staging, [])

    def _table(self, values: AnyArray, name: str) -> Original:
        from monitor.authoring.policy_export.original import ExportRequest, tabulated  # noqa: PLC0415 - keep `cfmon --help` light

        return tabulated(values, self.model, ExportRequest(name), ())

    def measured(self, candidates: Sequence[CandidateFormula], report: Callable[[int], None]) -> list[Measured]:
        """Return measurements of the candidates in `before`, which was learned without the paths."""
        from monitor.authoring.proposal.measure import measured  # noqa: PLC0415 - keep `cfmon --help` light

        return measured(self.before, self.policies, candidates, self.paths, report)

    def replayed(self, best: Measured, config: Path, report: Callable[[int], None]) -> Measured:
        """Return `best`, with the first path on which its formula fires in the written model as `first`.

        The written model was learned with all paths, so its answer on a path may differ from the answer of `before`.
        Bands and recourse are left out, because they change no alarm.
        """
        from monitor.authoring.proposal.measure import first_firing  # noqa: PLC0415 - keep `cfmon --help` light
        from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - likewise

        del report
        loaded = assemble(config, {})
        loaded = loaded.with_formulas([spec_with(spec, bands="off", recourse="off") for spec in loaded.formulas])
        preceding = [number for number, path in enumerate(best.paths) if path.preceded]
        others = [number for number, path in enumerate(best.paths) if path.alarms]
        paths = ((n, self.paths[n], self._states(self.paths[n])) for n in dict.fromkeys([*preceding, *others]))
        return replace(best, first=first_firing(loaded.monitor, self.action_names, paths))

    def guards(self, best: CandidateFormula) -> list[Guarded]:
        """Return the effect of a guard for each length of takeover, computed exactly in the model."""
        from monitor.authoring.proposal.hold import guarded  # noqa: PLC0415 - keep `cfmon --help` light

        return guarded(self.before, self.policies, best, self.paths)

    def sent(self, path: RecordedPath) -> list[dict[str, object]]:
        """Return the states of a path as an agent sends them: for bins and clusters, as numbers within them."""
        final = final_state(path, self.model, self.encoder)
        states = [*path.states[:-1].tolist(), *([] if final is None else [final])]
        return [{"state": sent_state(state, self.model, self.encoder)} for state in states]

    def _states(self, path: RecordedPath) -> list[Any]:
        """Return the states of a path as the monitor receives them from an agent, with lists as tuples."""
        found = [message["state"] for message in self.sent(path)]
        return [tuple(state) if isinstance(state, list) else state for state in found]


def is_constant(given: str) -> bool:
    """Return whether a policy has the form `do(ACTION)`."""
    return given.startswith("do(") and given.endswith(")")


def constant_fallback(given: str | None, names: ActionNames) -> int | None:
    """Return the action of `do(ACTION)`, or None if `given` has another form.

    Raises ConfigError if the action is unknown.
    """
    if given is None or not is_constant(given):
        return None
    text = given[3:-1].strip()
    if (action := names.named(text)) is None:
        raise ConfigError(f"--fallback {given}: {text!r} is not an action of the model ({names.expected()})")
    return action


def suggestion(label: str, horizon: int, by: str) -> str:
    """Return the note on a suggested fallback. `by`: phrase on how it was computed."""
    return (
        f"fallback: a SUGGESTION, the actions that most probably avoid {label!r} for {horizon} steps {by}; it pursues "
        "no other goal and was never tried. Replace it by a policy that you trust (--fallback)"
    )


@dataclass(frozen=True)
class CountedTable:
    """Counts of recordings.

    `kept`: the held-out paths. `compared`: scores of abstractions, if several were compared. `step_seconds`: seconds
    between two rows, if known.
    """

    learner: Learner
    kept: Collected
    compared: Sequence[Scored]
    step_seconds: float | None


def counted(request: InitRequest, staging: Path, given: Mapping[str, GivenPolicy]) -> CountedTable:
    """Count the recordings: all paths for the model, and separately all paths that are not held out.

    `given`: the policies that the user gives, whose choices suggest states.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.learning.cross_fitting import Collected  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.row_files import FileRows, digest_of  # noqa: PLC0415 - likewise

    sources = request.sources()
    said = request.said | {"unsafe": [request.unsafe]}
    learner, compared = new_learner(
        sources, staging / "model.npz", request.roles, said, request.seed,
        choices=lambda roles: recorded_choices(sources, roles, given, request.limit),
    )  # fmt: skip
    learner.missing = request.missing
    sources = [with_function(source, learner.function) for source in sources]
    if not request.quiet:
        show_comparison(compared)
    unsafe = np.array([each.unsafe for each in learner.labels], np.bool_)
    kept = Collected(request.seed, unsafe=unsafe, unmarked=learner.roles.truncated is None)
    files = [(FileRows(source, learner.roles.used), before) for source, before in with_sizes(sources)]
    with reading("counting", sources) as bar:
        for (rows, before), after in zip(files, [*(each for each, _ in files[1:]), None], strict=True):
            read_into(learner, rows, bar, before, kept, after=after)
            learner.files.append(digest_of(rows.source.path))
    learner.left_out.refuse(request.limit, str(sources[0].path))
    return CountedTable(learner, kept, compared, step_seconds(sources[0], learner.roles))


def learned_table(request: InitRequest, table: CountedTable, label: str, staging: Path) -> TableBase:
    """Write the model of the counts, and return its base.

    `before` of the base is the model without the held-out paths. If the formulas are also measured on other paths, it
    is the model of all paths.
    """
    from monitor.authoring.learning.abstraction_scores import CandidateAbstraction  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.companion import companion_of, save_learner  # noqa: PLC0415 - likewise
    from monitor.authoring.proposal.paths import paths_of  # noqa: PLC0415 - likewise
    from monitor.model.io import save_model  # noqa: PLC0415 - likewise

    learner, kept = table.learner, table.kept
    assert learner.states is not None
    save_learner(learner, companion_of(staging / "model.npz"))
    model = learner.model(str(request.folder / "model.npz"))
    save_model(model, staging / "model.npz")
    held, every = paths_of(kept.held(), learner.where()), paths_of(kept.every(), learner.where())
    unsafe = model.labels[label]
    notes = [f"learned from {learner.tally.draws:,} transitions; {label!r} holds in {int(unsafe.sum()):,} states"]
    notes += [*notes_on_bins(learner, request.said["bins"]), *notes_on_rows(learner)]
    base = TableBase.of(model, label, notes, ENCODERS[learner.states.kind])
    report = CandidateAbstraction("", learner, kept).report([each.name for each in learner.labels])
    base.past, base.pages = report.histories, (sections(report, table.compared), charts(report))
    base.step_seconds, base.read_rows = table.step_seconds, lambda: rows_of(learner, request.recordings, request.topic)
    before = _without_held_out(table) if kept.train.draws else model
    usable = held if before is not model and before.states == model.states else []
    base.paths, base.measured_on, alone = chosen_paths(usable, every, unsafe, request.steps, MOST_STEPS)
    base.before = before if alone else model
    return base


def _without_held_out(table: CountedTable) -> MDP:
    from monitor.authoring.learning.learned_model import built  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.states import numbered  # noqa: PLC0415 - likewise

    learner = table.learner
    assert learner.states is not None
    assert learner.actions is not None
    train = replace(table.kept.train, visited=learner.tally.visited)
    return built(
        train,
        (learner.states, learner.actions),
        numbered(train, learner.states, actions=learner.actions),
        learner.labels,
        prior=learner.prior,
        source="held out",
        late=learner.runs_on,
    )


def simulated_table(request: InitRequest, staging: Path) -> TableBase:
    """Explore the simulator. A Gymnasium environment with a table of probabilities is read as in `model convert`."""
    from monitor.model.io import load_model, save_model  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.model.label_conditions import labelled  # noqa: PLC0415 - likewise

    assert request.simulator is not None
    assert request.unsafe is not None
    if request.dynamics or request.inputs:
        raise ConfigError("--dynamics and --inputs are for --recordings; a simulator is explored as a table")
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
    save_model(model, staging / "model.npz")
    notes.append(f"{label!r} holds in {int(model.labels[label].sum()):,} states")
    return TableBase.of(model, label, notes)


def _or_none(read: Callable[[], MDP]) -> MDP | None:
    try:
        return read()
    except ModelError:
        return None  # the environment has no table; exploring reports any other error


def _explored(request: InitRequest, conditions: tuple[str, ...], notes: list[str], report: Callable[..., None]) -> MDP:
    from monitor.authoring.exploration.enumeration import ExplorationSettings, explore  # noqa: PLC0415 - keep `cfmon --help` light

    found = explore(
        str(request.simulator),
        ExplorationSettings(seed=request.seed, conditions=(*conditions, *request.said["label"])),
        lambda done, known: report(done, f"exploring: {done:,} of {known:,} states") if done % 100 == 0 else None,
    )
    notes += found.notes
    return found.model
