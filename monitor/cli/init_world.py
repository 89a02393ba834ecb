"""`cfmon init` with a world with numbers that is learned from recordings: its policies and its measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from monitor.cli.dynamics_report import charts, sections
from monitor.cli.init_base import InitBase, InitRequest, chosen_paths, step_seconds
from monitor.cli.init_files import written_policy
from monitor.cli.init_imitation import NAMES
from monitor.cli.init_table import constant_fallback, suggestion
from monitor.cli.learn_dynamics import LearnedWorld, learned_world, world_roles, write_world
from monitor.cli.output import progress
from monitor.cli.recorded_inputs import many
from monitor.errors import PolicyError

if TYPE_CHECKING:
    from monitor.arrays import Floats, Ints
    from monitor.authoring.dynamics.fitted_policy import FittedPolicy
    from monitor.authoring.dynamics.label_forecasts import ForecastingWorld
    from monitor.authoring.learning.columns import Roles
    from monitor.authoring.learning.outcomes import Outcomes
    from monitor.authoring.policy_export.original import Original
    from monitor.authoring.proposal.hold import Guarded
    from monitor.authoring.proposal.measure import CandidateFormula, Measured
    from monitor.authoring.proposal.paths import RecordedPath
    from monitor.authoring.proposal.world_paths import RecordedNumbers
    from monitor.model.action_names import ActionNames
    from monitor.model.mdp import MDP
    from monitor.worlds import CheckedWorld

MOST_STEPS: Final = 6_000
"""Largest number of steps that formulas are measured on, unless --steps gives another number. Each value is sampled."""


@dataclass
class WorldBase(InitBase):
    """A world with numbers.

    `world`: the world as it is written. `table`: the same world as a table over recorded states. Policies are suggested
    and checked on this table. `inputs`: [S, i] the inputs recorded in these states.

    `behaviour`: the recorded policy. `numbers`: the numbers of each state of the paths. `policies`: manifests of the
    policies for the measurement. `tables`: the same policies as tables [S, A] over the states of `table`. `seed`: seed
    of simulated episodes.
    """

    world: CheckedWorld = field(kw_only=True)
    table: MDP = field(kw_only=True)
    inputs: Floats = field(kw_only=True)
    behaviour: FittedPolicy = field(kw_only=True)
    numbers: RecordedNumbers = field(kw_only=True)
    seed: int = field(kw_only=True)
    policies: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Floats] = field(default_factory=dict)

    @property
    def action_names(self) -> ActionNames:
        """The names of the actions."""
        return self.world.named_actions

    def write_nominal(self, request: InitRequest, staging: Path) -> None:
        """Write the agent's policy. If none is given, estimate it by a fit to the recorded actions."""
        if request.nominal is None:
            found, seen = self.behaviour, "state and of the inputs" if self.world.inputs else "state"
            self.notes.append(
                f"nominal: ESTIMATED from the recordings, probabilities of the actions by {NAMES[found.kind]} on the "
                f"numbers of the {seen} (squared error on held-out steps {found.error:.2f} times that of the "
                "frequencies); --nominal gives the agent's own"
            )
            self._write(found, "nominal", staging, stochastic=True)
        else:
            self._write_given("nominal", request, staging)

    def write_fallback(self, request: InitRequest, horizon: int, staging: Path) -> None:
        """Write the fallback. If none is given, suggest a fit to the safest policy over the recorded states."""
        import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

        from monitor.authoring.proposal.policies import safest_policy  # noqa: PLC0415 - likewise

        one_hot, constant = np.eye(self.table.actions), constant_fallback(request.fallback, self.action_names)
        if constant is not None:
            self.notes.append(f"fallback: always {request.fallback}")
            self._write(
                self._fitted(np.tile(one_hot[constant], (self.table.states, 1)), request.seed), "fallback", staging
            )
        elif request.fallback is not None:
            self._write_given("fallback", request, staging)
        else:
            safest = safest_policy(self.table, self.table.labels[self.label], horizon, self.tables["nominal"])
            fitted = self._fitted(one_hot[safest], request.seed)
            by = f"by this world, in {self.table.states:,} recorded states, with {NAMES[fitted.kind]} between them"
            self.notes.append(suggestion(self.label, horizon, by))
            self._write(fitted, "fallback", staging)

    def _write_given(self, name: str, request: InitRequest, staging: Path) -> None:
        """Write a policy that the user gives: a network unchanged, a tree exactly, any other policy as an imitation."""
        from monitor.authoring.policy_export.convert import on_first  # noqa: PLC0415 - keep `cfmon --help` light
        from monitor.cli.init_imitation import written_again  # noqa: PLC0415 - likewise

        given = self.given[name]
        if given.function is not None or given.classifier is not None:
            original, width, note = written_again(given, self.rows, self.table, request.seed, request.limit)
            self.notes.append(f"{name}: {note}")
            self._write_original(original, width, name, staging)
            return
        if not given.seen:
            raise PolicyError(
                f"policy {given.source}: it takes the number of a state, and those of a world with numbers have none; "
                "give a function of columns, a classifier, or a network of the numbers of a state"
            )
        self.policies[name] = str(staging / f"{name}.yaml")
        self.tables[name] = on_first(
            self._views(), lambda table: written_policy(given.source, name, table, staging, self.notes)
        )

    def _views(self) -> list[MDP]:
        """Return the table once for each kind of observation: the state and, if there are inputs, state with inputs."""
        from monitor.worlds import with_inputs  # noqa: PLC0415 - keep `cfmon --help` light

        assert self.table.observations is not None
        both = with_inputs(self.table.observations.astype("float64"), self.inputs)
        return [self.table, *([dataclass_replace(self.table, observations=both)] if self.world.inputs else [])]

    def _fitted(self, wanted: Floats, seed: int) -> FittedPolicy:
        """Return a policy on numbers, fitted to these probabilities of actions [S, A] in the states of the table."""
        import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

        from monitor.authoring.dynamics.fitted_policy import KINDS, fitted_policy  # noqa: PLC0415 - likewise

        assert self.table.observations is not None
        states = self.table.observations.astype(np.float64)
        held = np.arange(len(states)) % 5 == 0
        kinds = KINDS if bool((wanted != wanted[0]).any()) else KINDS[:1]
        return fitted_policy((states[~held], wanted[~held]), (states[held], wanted[held]), seed, kinds)

    def _write(self, policy: FittedPolicy, name: str, staging: Path, *, stochastic: bool = False) -> None:
        from monitor.authoring.policy_export.original import Original  # noqa: PLC0415 - keep `cfmon --help` light

        content = policy.content(self.counts["actions"])
        original = Original(content, "probabilities", stochastic=stochastic, actions=None, scores=None)
        self._write_original(original, policy.width, name, staging)

    def _write_original(self, original: Original, width: int, name: str, staging: Path) -> None:
        """Write a converted policy. `width`: number of values that it observes."""
        view = next(
            each for each in self._views() if each.observations is not None and each.observations.shape[1] == width
        )
        self.policies[name] = str(staging / f"{name}.yaml")
        self.tables[name] = written_policy(original, name, view, staging, [])

    def measured(self, candidates: Sequence[CandidateFormula], report: Callable[[int], None]) -> list[Measured]:
        """Return measurements of the candidates in the world, which was learned without the paths."""
        from monitor.authoring.proposal.measure_world import measured_in_world  # noqa: PLC0415 - keep `cfmon --help` light

        return measured_in_world(self.world, self.policies, candidates, (self.paths, self.numbers), report)

    def replayed(self, best: Measured, config: Path, report: Callable[[int], None]) -> Measured:
        """Return the chosen formula's figures as the monitor with this configuration measures them, path by path.

        Bands and recourse are left out, because they change no alarm. Paths without a value near the threshold are not
        replayed.
        """
        from monitor.authoring.proposal.measure_world import replayed_alone  # noqa: PLC0415 - keep `cfmon --help` light
        from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - likewise

        loaded = assemble(config, {})
        specs = [replace(spec, bands="off", recourse="off") for spec in loaded.formulas]
        if len(best.near) < len(self.paths):
            self.measured_on += (
                f"; of these the monitor replayed {many(len(best.near), 'path')}, as on the others each value is "
                "clearly above the threshold"
            )
        return replayed_alone(
            lambda: loaded.with_formulas(specs).monitor,
            best.candidate,
            (self.paths, self.numbers),
            self.numbers.unsafe(self.world, self.label),
            report,
            names=self.action_names,
            only=set(best.near),
        )

    def guards(self, best: CandidateFormula) -> list[Guarded]:
        """Return the effect of a guard for each length of takeover, in episodes simulated in the world."""
        from monitor.authoring.proposal.hold_world import guarded_in_world  # noqa: PLC0415 - keep `cfmon --help` light

        recorded = self.paths, self.numbers
        return guarded_in_world(self.world, self.policies, (self.table, self.tables), best, recorded, seed=self.seed)

    def sent(self, path: RecordedPath) -> list[dict[str, object]]:
        """Return the recorded states and inputs of a path as an agent sends them."""
        messages: list[dict[str, object]] = []
        for state in path.sent.tolist():
            numbers, inputs = self.numbers.sent(state)
            messages.append({"state": numbers, **({"inputs": inputs} if inputs else {})})
        return messages


@dataclass(frozen=True)
class WorldProposal:
    """A learned world with the recorded policy. `roles`: roles of the columns."""

    learned: LearnedWorld
    behaviour: FittedPolicy
    roles: Roles

    def lacking(self, label: str) -> list[str]:
        """Return a sentence if the label never holds in these recordings, so that no world can be good enough."""
        world, steps = self.learned.best.world, self.learned.steps
        if world.holds(label, steps.x).any() or world.holds(label, steps.x_next).any():
            return []
        return [f"{label}: its condition holds in no recorded state; check it, or record episodes in which it does"]

    def outcomes(self, label: str) -> Outcomes:
        """Return the outcomes of the recorded steps for this label."""
        import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

        from monitor.authoring.learning.outcomes import Outcomes  # noqa: PLC0415 - likewise

        steps = self.learned.steps
        holds = self.learned.best.world.holds(label, steps.x_next)
        ended = np.zeros(len(steps), np.bool_) if steps.ended is None else steps.ended
        unmarked = self.roles.truncated is None
        return Outcomes.of_label(holds, ended, steps.path, steps.episode, unmarked=unmarked)

    def forecasting(self, paths: Ints, seed: int) -> ForecastingWorld:
        """Return the world as a candidate in a comparison of forecasts, on the paths that are held out."""
        import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

        from monitor.authoring.dynamics.label_forecasts import ForecastingWorld  # noqa: PLC0415 - likewise

        found, world = self.learned, (self.learned.best.world, self.behaviour)
        checked = found.steps[np.isin(found.steps.episode, found.parts.check.episode)]
        return ForecastingWorld(world, found.judgement.problems, checked, paths, seed)


def proposed_world(request: InitRequest) -> WorldProposal:
    """Learn a world and the recorded policy. Raises RecordingError or ModelError if the recordings do not suffice."""
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.dynamics.fitted_policy import fitted_policy  # noqa: PLC0415 - likewise
    from monitor.worlds import with_inputs  # noqa: PLC0415 - likewise

    sources = request.sources()
    roles = world_roles(sources[0], request.roles, request.inputs)
    labels = [*([] if request.unsafe is None else [request.unsafe]), *request.said["label"]]
    learned = learned_world(sources, "world", roles, labels, request.seed, limit=request.limit, as_tables=True)
    one_hot = np.eye(len(learned.draft.actions))
    parts = [(with_inputs(part.x, part.w), one_hot[part.a]) for part in (learned.parts.fit, learned.parts.choice)]
    with progress("fitting the recorded policy"):
        return WorldProposal(learned, fitted_policy(parts[0], parts[1], request.seed), roles)


def world_base(request: InitRequest, proposal: WorldProposal, label: str, staging: Path) -> WorldBase:
    """Write the world, and return it with the paths to measure on."""
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.dynamics.learned_world import with_fits  # noqa: PLC0415 - likewise
    from monitor.authoring.dynamics.world_table import world_table  # noqa: PLC0415 - likewise
    from monitor.authoring.policy_export.policy_columns import policy_rows  # noqa: PLC0415 - likewise
    from monitor.authoring.proposal.hold_world import EPISODES  # noqa: PLC0415 - likewise
    from monitor.authoring.proposal.world_paths import held_out_paths, numbered_paths  # noqa: PLC0415 - likewise
    from monitor.worlds import load_world  # noqa: PLC0415 - likewise

    found = proposal.learned
    world, fits = found.best, ""
    if request.fits:
        began = monotonic()
        with progress(f"fitting to {request.fits} resamples"):
            world = with_fits(found.best, found.draft, found.parts, request.seed, request.fits)
        fits = (
            f"{many(request.fits, 'fit')} to resampled episodes for the credible band, in {monotonic() - began:.0f} s; "
            "an answer with a band takes 12 to 60 times as long, so only missed goals have one (`bands:` of the "
            "formula); --fits 0 leaves them out"
        )
    write_world(world, staging / "world.yaml")
    with progress("looking for a fallback"):
        table, inputs = world_table(found.best.world, found.parts.fit, request.seed)
    labels = list(found.draft.labels)
    every, numbers = numbered_paths(found.steps, labels.index(label) - len(labels))
    held = held_out_paths(every, found.parts, request.seed)
    unsafe, unseen = numbers.unsafe(found.best.world, label), sum(path.unseen for path in every)
    paths, measured_on, _ = chosen_paths(held, every, unsafe, request.steps, MOST_STEPS)
    gain, error = found.judgement.gain
    learned = (
        f"a world with numbers, learned from {len(found.steps):,} steps: {found.best.name}; {gain:.3f} +- {error:.3f} "
        f"nats a step better than the last value as a forecast; {label!r} holds after "
        f"{np.count_nonzero(found.best.world.holds(label, found.steps.x_next)):,} of them"
        f"{f', and may hold in {unseen:,} last states that were not recorded; these count as events' * (unseen > 0)}"
    )
    counts = {"features": len(found.draft.features), "inputs": len(found.draft.inputs), "actions": table.actions}
    base = WorldBase(
        "world.yaml", counts, "features", label, unsafe, paths, measured_on,
        [learned, *found.notes, *([fits] if fits else [])],
        world=load_world(staging / "world.yaml"), table=table, inputs=inputs, behaviour=proposal.behaviour,
        numbers=numbers, seed=request.seed,
    )  # fmt: skip
    base.step_seconds = step_seconds(request.sources()[0], proposal.roles)
    base.read_rows = lambda: policy_rows(request.sources(), proposal.roles)
    base.guarded_how = (
        f"{EPISODES:,} simulated in the world for each `hold`; whether the alarm fires is taken from the nearest of "
        f"{table.states:,} recorded states"
    )
    base.pages = sections(found.judgement, found.scored), charts(found.judgement)
    return base
