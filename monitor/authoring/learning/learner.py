"""Learning a model from batches of rows. A companion file stores a `Learner`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from monitor.authoring.learning.abstraction import (
    EncodingKind,
    Numbering,
    chosen_kind,
    numbered_actions,
    numbered_signals,
)
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.conditions import Condition, parsed
from monitor.authoring.learning.episodes import Episodes
from monitor.authoring.learning.learned_model import LabelSpec, built
from monitor.authoring.learning.left_out import LeftOut
from monitor.authoring.learning.recorded_steps import Steps, no_steps
from monitor.authoring.learning.sentinels import MissingValues
from monitor.authoring.learning.state_codes import MAX_LABELS
from monitor.authoring.learning.states import States, numbered
from monitor.authoring.learning.tally import Tally
from monitor.errors import ModelError
from monitor.model.annotations import checked_labels
from monitor.model.mdp import MDP

ALIASES: Final = {"reward": "reward", "terminated": "terminated", "done": "terminated", "truncated": "truncated"}


@dataclass
class Learner:
    """A model that is being learned.

    Attributes:
        roles: roles of the columns.
        states, actions, signals: numberings so far; `actions` is None before the first batch, and `signals` also if
            states are seen.
        labels, conditions: the labels, and the condition of each label.
        prior: pseudo-count of a row.
        tally: the counts.
        rows: number of rows read.
        files: SHA-256 of each counted file.
        function: `module.py:function` that computes states, or "".
        missing: column -> values that stand for missing values.
        kept: codes of the states of the last written model, in the order of their numbers.
        episodes: reader of the current file.
        left_out: the rows that were left out.
        step: usual time between two rows of an episode, if times order them; None: a counter orders them, or no usual
            time is known.
        joined: number of files whose last episodes the next file continued.
    """

    roles: Roles
    states: Numbering | None
    labels: tuple[LabelSpec, ...] = ()
    conditions: tuple[Condition, ...] = ()
    prior: float = 1.0
    actions: Numbering | None = None
    signals: Numbering | None = None
    tally: Tally = field(default_factory=lambda: Tally.empty(0, 0))
    rows: int = 0
    files: list[str] = field(default_factory=list)
    function: str = ""
    missing: MissingValues = field(default_factory=dict)
    kept: tuple[int, ...] = ()
    episodes: Episodes | None = None
    left_out: LeftOut = field(default_factory=LeftOut)
    step: float | None = None
    joined: int = 0

    @classmethod
    def new(
        cls, roles: Roles, states: Numbering | None, conditions: Sequence[tuple[Condition, bool]], prior: float
    ) -> Learner:
        """Return a learner that has read nothing. `conditions`: conditions of labels, each with True if unsafe."""
        if not prior > 0 or prior == float("inf"):
            raise ModelError(f"--prior is {prior}; give a pseudo-count above 0")
        labels = tuple(LabelSpec(condition.name, unsafe) for condition, unsafe in conditions)
        tally = Tally.empty(len(labels), len(roles.observation))
        return cls(roles, states, labels, tuple(condition for condition, _ in conditions), prior, tally=tally)

    def read(self, batch: RowBatch) -> Steps:
        """Count the rows of a batch; return the counted steps."""
        usable = batch.whole()
        if not len(usable) and (self.states is None or self.actions is None):
            self.left_out.take(usable)
            self.rows += batch.rows
            return no_steps(self.roles, self.conditions)
        if self.states is None:
            self.states = Numbering(self._state_kind(usable), self.roles.state)
        if self.actions is None:
            self.actions = numbered_actions(usable, self.roles.action)
        if self.signals is None and self.roles.signal is not None:
            self.signals = numbered_signals(usable, self.roles.signal)
        if self.episodes is None:
            self.episodes = Episodes(
                self.roles, self.states, self.actions, self.conditions, self.rows, left_out=self.left_out,
                signals=self.signals,
            )  # fmt: skip
        steps = self.episodes.read(batch)
        self.rows += batch.rows
        self.tally.add(steps)
        if not self.episodes.counts_up:
            self.step = self.episodes.step or self.step
        return steps

    def goes_on(self, batch: RowBatch | None) -> bool:
        """Return whether an episode of this file continues in the next file, whose first rows are `batch`."""
        return batch is not None and self.episodes is not None and self.episodes.goes_on(batch)

    def end_file(self) -> Steps | None:
        """End a file: count its remaining steps and return them. Return None if nothing was read."""
        if self.episodes is None:
            return None
        steps = self.episodes.finish()
        self.episodes = None
        self.tally.add(steps)
        return steps

    def model(self, source: str) -> MDP:
        """Return the model of the counts so far."""
        if self.states is None or self.actions is None:
            raise ModelError(f"{source}: the recordings have no rows")
        return built(
            self.tally, (self.states, self.actions), self.where(), self.labels, prior=self.prior, source=source,
            late=self.runs_on, signals=self.signals,
        )  # fmt: skip

    @property
    def runs_on(self) -> bool:
        """True if the count of steps continues from episode to episode, so that episodes that begin late are complete.

        This is assumed if at least half of the late episodes continue the count of the previous row, or if most
        episodes begin late. The second criterion does not apply to messages, because their count begins with 0.
        """
        starts, late = self.tally.visited["starts"].sum(), self.tally.visited["late"].sum()
        return bool(2 * self.tally.continued >= late > 0 or (self.roles.timing == "step" and late > starts))

    def where(self) -> States:
        """Return the states of the model of the counts so far."""
        assert self.states is not None
        return numbered(self.tally, self.states, self.kept, self.actions)

    def _state_kind(self, batch: RowBatch) -> EncodingKind:
        name = self.roles.state[0]
        return chosen_kind(batch, self.roles.state, "state", f"bin it, such as --bins '{name}:8q'")


def labels_of(
    labels: Sequence[str], unsafe: Sequence[str], roles: Roles, names: Sequence[str]
) -> list[tuple[Condition, bool]]:
    """Return the conditions of `--label` and `--unsafe`, each with True if it is from `--unsafe`.

    Raises ModelError if a condition cannot be parsed, a column does not exist, or a name is given twice.
    """
    found = [(parsed(text), False) for text in labels] + [(parsed(text), True) for text in unsafe]
    if len(found) > MAX_LABELS:
        raise ModelError(f"{len(found)} labels are more than {MAX_LABELS}")
    checked_labels({condition.name: [] for condition, _ in found}, 1)
    for i, (condition, _) in enumerate(found):
        if condition.name in {other.name for other, _ in found[:i]}:
            raise ModelError(f"label {condition.name!r} is given twice")
        for column in condition.columns:
            role = ALIASES.get(column)
            if column not in names and (role is None or getattr(roles, role) is None):
                known = ", ".join(names)
                raise ModelError(f"label {condition.name!r}: there is no column {column!r}; there are {known}")
    return found
