"""The request of `cfmon init`, and the model on which formulas are measured: a table, or a world with numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from monitor.authoring.learning.left_out import DEFAULT, RowLimit
from monitor.cli.output import progress
from monitor.cli.recorded_inputs import open_recording, recorded_files
from monitor.types.specs import AlarmSpec

if TYPE_CHECKING:
    from monitor.arrays import Bools
    from monitor.authoring.learning.columns import Roles
    from monitor.authoring.learning.cross_fitting import ForecastJudge
    from monitor.authoring.learning.model_report import Gain
    from monitor.authoring.learning.row_files import RowFile
    from monitor.authoring.learning.sentinels import MissingValues
    from monitor.authoring.policy_export.given_policy import GivenPolicy
    from monitor.authoring.policy_export.policy_columns import PolicyRows
    from monitor.authoring.proposal.hold import Guarded
    from monitor.authoring.proposal.measure import CandidateFormula, Measured
    from monitor.authoring.proposal.paths import RecordedPath
    from monitor.cli.report_page import ReportSection
    from monitor.model.action_names import ActionNames

FEW: Final = 5
"""Only the held-out paths are used for measurements if they have at least this number of unsafe events."""


@dataclass(frozen=True)
class InitRequest:
    """The settings that the user gave.

    `roles`, `said`: options of `cfmon model learn`. `steps`: number of steps to measure on; None: as many as are needed
    for enough events. `offset`, `alarm`: offset and alarm rule of every candidate formula. `accept`: continue with a
    model that forecasts no better than the base rate. `dynamics`: True: a world with numbers; False: a table; None: the
    better of the two. `inputs`: columns that the agent does not influence. `inputs_guessed`: True if these columns are
    only guessed. A table without them may then also be learned. `missing`: values of columns that stand for missing
    values. `record`: text of the settings file that repeats this run. `limit`: number of bad rows that may be left out.
    `fits`: number of fits of a world to resampled episodes. `step_seconds`: seconds between two steps.
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
    steps: int | None
    seed: int
    offset: int
    alarm: AlarmSpec
    force: bool
    quiet: bool
    accept: bool = False
    step_seconds: float | None = None
    dynamics: bool | None = None
    inputs: tuple[str, ...] = ()
    inputs_guessed: bool = False
    missing: MissingValues = field(default_factory=dict)
    record: str = ""
    limit: RowLimit = field(default_factory=lambda: RowLimit.parsed(DEFAULT))
    fits: int = 0

    def sources(self) -> list[RowFile]:
        """Return the rows of the recordings. Raises RecordingError if a file does not exist."""
        return [open_recording(path, self.topic, self.missing) for path in recorded_files(self.recordings)]


@dataclass
class InitBase(ABC):
    """The model that `cfmon init` writes, with the paths and policies for the measurement.

    Attributes:
        file: file name of the model.
        counts: name -> number, of states and actions, or of features, inputs and actions.
        encoder: `state_encoder` of the configuration.
        label: label that holds in unsafe states.
        paths: paths of the agent. If they are simulated, they are empty until the agent's policy is known.
        measured_on: description of the paths.
        unsafe: [S] True for each unsafe state of the paths.
        notes: sentences on how the model was made.
        guarded_how: how `guards` was computed.
        unguarded: the reason to give if `guards` is empty.
        judge: computes the skill of the model's forecasts.
        problems: further reasons why the model is not good enough.
        past: results of the Markov test: gains in predictions of the next state from knowing more of the past.
        step_seconds: seconds between two recorded steps, if the recordings have times.
        pages: sections and charts of the report on the model.
        given: name -> policy that the user gives together with recordings.
        read_rows: reads the recorded rows, for a policy that sees their columns.
    """

    file: str
    counts: dict[str, int]
    encoder: str
    label: str
    unsafe: Bools
    paths: list[RecordedPath]
    measured_on: str
    notes: list[str] = field(default_factory=list)
    guarded_how: str = "exact in the model (docs/takeover.md, section How long)"
    unguarded: str = "each recorded path starts in an unsafe state"
    judge: ForecastJudge | None = None
    problems: tuple[str, ...] = ()
    past: tuple[Gain, ...] = ()
    step_seconds: float | None = None
    pages: tuple[list[ReportSection], dict[str, str]] = field(default_factory=lambda: ([], {}))
    given: Mapping[str, GivenPolicy] = field(default_factory=dict)
    read_rows: Callable[[], PolicyRows] | None = None

    @cached_property
    def rows(self) -> PolicyRows:
        """The recorded rows, which are read once."""
        assert self.read_rows is not None
        with progress("reading the rows again, for what the given policies do on them"):
            return self.read_rows()

    @property
    @abstractmethod
    def action_names(self) -> ActionNames:
        """The names of the actions."""

    @abstractmethod
    def write_nominal(self, request: InitRequest, staging: Path) -> None:
        """Write the agent's policy, which is given or estimated."""

    @abstractmethod
    def write_fallback(self, request: InitRequest, horizon: int, staging: Path) -> None:
        """Write the fallback, which is given or suggested for this horizon."""

    @abstractmethod
    def measured(self, candidates: Sequence[CandidateFormula], report: Callable[[int], None]) -> list[Measured]:
        """Return measurements of the candidates with both policies.

        `report` is called with the number of steps done.
        """

    def replayed(self, best: Measured, config: Path, report: Callable[[int], None]) -> Measured:
        """Return the chosen formula's figures as the monitor with this configuration measures them on the paths."""
        del config, report
        return best

    @abstractmethod
    def guards(self, best: CandidateFormula) -> list[Guarded]:
        """Return the effect of a guard for each length of takeover."""

    @abstractmethod
    def sent(self, path: RecordedPath) -> list[dict[str, object]]:
        """Return the keys of an agent's message that give each state of a path, such as `{"state": 3}`.

        Leave out a last state that an agent cannot send.
        """


def chosen_paths(
    held: Sequence[RecordedPath], every: Sequence[RecordedPath], unsafe: Bools, steps: int | None, most: int
) -> tuple[list[RecordedPath], str, bool]:
    """Return the paths to measure on, their description in words, and whether all of them are held out.

    `steps`, `most`: as for `measured_paths`.

    Only held-out paths are used. If they have too few unsafe events, and all paths together have more, all paths are
    used.
    """
    from monitor.authoring.proposal.paths import measured_paths, unsafe_events  # noqa: PLC0415 - keep `cfmon --help` light

    parts = [(measured_paths(part, unsafe, steps, most), part) for part in (held, every)]
    events = [sum(len(unsafe_events(path, unsafe)) for path in used) for used, _ in parts]
    alone = bool(held) and (events[0] >= FEW or events[0] >= events[1])
    (used, part), what = (parts[0], HELD_OUT) if alone else (parts[1], ALL)
    return used, in_words(used, part, steps, what), alone


def in_words(used: Sequence[RecordedPath], part: Sequence[RecordedPath], steps: int | None, what: str) -> str:
    """Return the numbers of measured steps and paths in words; if only some paths of `part` are measured, also why.

    `what`: description of the paths of `part`.
    """
    from monitor.authoring.proposal.paths import EVENTS  # noqa: PLC0415 - keep `cfmon --help` light

    said = f"{sum(len(path.actions) for path in used):,} steps in {len(used):,} paths of {what}"
    if len(used) == len(part) or steps is not None:
        return said
    return (
        f"{said}; of {len(part):,} paths the first, until {EVENTS} unsafe events or the most steps (--steps for more)"
    )


def step_seconds(source: RowFile, roles: Roles) -> float | None:
    """Return the median time between two rows of a path, in seconds, or None if no column holds calendar times."""
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.learning.batch import as_moments  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.row_files import START  # noqa: PLC0415 - likewise

    if roles.order is None:
        return None
    batch = next(source.batches(roles.used, START), None)
    if batch is None or batch.column(roles.order).dtype.kind != "U":
        return None
    times = as_moments(batch, roles.order)
    rises = np.diff(times)
    if times.dtype.kind == "i" or not bool((rises > 0).any()):
        return None
    return float(np.median(rises[rises > 0]))


HELD_OUT: Final = "held-out recordings; for this, the model was learned without them"
ALL: Final = "the recordings that the model was learned from, as too few are held out: the figures are optimistic"
