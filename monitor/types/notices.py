"""Results of the monitor; each sink uses those that concern it."""

from __future__ import annotations

from typing import Literal

import msgspec

from monitor.types.alerts import AlarmState, Alert
from monitor.types.specs import FormulaSpec
from monitor.types.stream_events import BlindReason, Episode, MessageResult, State
from monitor.types.verdicts import Verdict

TakeoverOutcome = Literal["needed", "needless", "harmful", "futile", "undecided"]
"""Judgement of a takeover. `needed`: the goal was met, and the deployed policy would have missed it; `needless`: the
deployed policy would have met it too; `harmful`: only the deployed policy would have met it; `futile`: the goal was
missed, and the deployed policy would have missed it too.
"""


class Received(msgspec.Struct, frozen=True, gc=False):
    """Result of one message. `lag`: receive time minus the agent's time, in seconds; None if the agent sent no time."""

    agent: str
    result: MessageResult
    reason: str = ""
    detail: str = ""
    lag: float | None = None


class Judged(msgspec.Struct, frozen=True, gc=False):
    """Verdict on a formula for an agent at a step. `time`: time of the step, seconds since the epoch."""

    agent: str
    formula: str
    verdict: Verdict
    episode: Episode
    seq: int
    time: float
    late: bool = False


class Blind(msgspec.Struct, frozen=True):
    """A formula became blind for an agent, or is no longer blind (`reason` None). Sent only on a change."""

    agent: str
    formula: str
    reason: BlindReason | None
    detail: str = ""


class AlarmMoved(msgspec.Struct, frozen=True):
    """New state of a formula's alarm: `clear`, `pending` or `firing`. Sent only on a change."""

    agent: str
    formula: str
    state: AlarmState


class Refreshed(msgspec.Struct, frozen=True):
    """Newer verdict on a firing alarm, without a new revision of the alert. The next heartbeat publishes the verdict.

    `monitor.alarm.refresh` computes the alert from this notice. `pairs`: length of the verdict's path. `worst`: see
    `Alert`.
    """

    judged: Judged
    spec: FormulaSpec
    pairs: int
    worst: float | None = None


class OffPolicy(msgspec.Struct, frozen=True):
    """An action of the agent that the nominal policy never takes in that state."""

    agent: str


class Deviates(msgspec.Struct, frozen=True):
    """Deviation of the agent from the nominal policy; sent if it has changed by 0.01.

    `share`: fraction of the last `steps` steps, 0 to 1, at which the agent deviated. Differences that the randomness of
    the nominal policy explains are subtracted (`monitor.statistics.deviation`).
    """

    agent: str
    share: float
    steps: int


class RewardMismatch(msgspec.Struct, frozen=True):
    """A reported reward that differs from the model's for the same transition.

    `detail`: the transition and both rewards. Path and verdicts do not depend on the reported reward.
    """

    agent: str
    detail: str


class Skipped(msgspec.Struct, frozen=True):
    """`count` due evaluations of a formula were skipped; the path is complete nevertheless.

    An alarm is missing if only the skipped evaluations would have raised it.
    """

    agent: str
    formula: str
    count: int


class Ended(msgspec.Struct, frozen=True):
    """End of an agent's episode; values are undefined until the agent's next episode begins."""

    agent: str
    episode: Episode


class Forgotten(msgspec.Struct, frozen=True):
    """An agent was silent for `forget_after`; everything stored or shown under its name can be deleted.

    `silent`: seconds since the agent's last message. `open`: the agent's episode had not ended.
    """

    agent: str
    silent: float = 0.0
    open: bool = False


class Departing(msgspec.Struct, frozen=True):
    """A transition that is observed more often than the model predicts.

    `seen`: number of transitions to `successor` in the last `of` steps from `state` with `action`; `expected`: the
    number that the model predicts. In a world with numbers `state` is a range of a feature, and `successor` a part of
    its noise.
    """

    state: int | str
    action: int | str
    successor: int | str
    seen: int
    of: int
    expected: float


class Trust(msgspec.Struct, frozen=True):
    """Result of the test of the model; sent when `doubted` changes, and from time to time.

    `doubted`: the observed transitions contradict the model. `log10_e`: log10 of the e-value against the model (0: no
    evidence, 3: a thousand to one). `transitions`: number of tested transitions. `agent`: agent whose transitions are
    tested; empty: all agents together. `departing`: if doubted, the transitions with the most evidence against the
    model, excluding impossible steps.
    """

    doubted: bool
    log10_e: float
    transitions: int
    agent: str = ""
    departing: tuple[Departing, ...] = ()


class WrongRow(msgspec.Struct, frozen=True):
    """A rejected row of the model, and the next state whose observed frequency differs most from its probability.

    `state`, `action`, `successor`: names, or numbers if the model has no names. `seen`: number of steps to `successor`
    among the newest `visits` counted visits. `probability`: probability of `successor` in the model. `impossible`:
    number of visits that led to a successor of probability 0. `log10_e`: log10 of the e-value against the row.
    """

    state: str
    action: str
    log10_e: float
    successor: str
    seen: int
    visits: int
    probability: float
    impossible: int


class WrongAgent(msgspec.Struct, frozen=True):
    """An agent that does not follow the model. `log10_e`: log10 of its e-value, valid at any time."""

    agent: str
    log10_e: float


class Contradictions(msgspec.Struct, frozen=True):
    """Rejected rows of the model and rejected agents; the expected fraction of wrong rejections is at most 0.05.

    Sent if the rejected rows or agents change, or if the evidence against them changes. `rows`, `agents`: the rejected
    rows and agents, at most ten of each, in descending order of the evidence against them. `rows_rejected`,
    `agents_rejected`: total numbers. `rows_tested`: number of rows that can be rejected; 0 if none is tested.
    """

    rows: tuple[WrongRow, ...] = ()
    agents: tuple[WrongAgent, ...] = ()
    rows_rejected: int = 0
    agents_rejected: int = 0
    rows_tested: int = 0


class Forecast(msgspec.Struct, frozen=True):
    """Outcome of a followed forecast: it came true, did not come true, or was dropped (None).

    `value`: the forecast probability, in [0, 1], that the agent's observed future satisfies the path formula.
    """

    agent: str
    formula: str
    value: float
    came_true: bool | None


class TakenOver(msgspec.Struct, frozen=True):
    """A takeover, judged by the goal of a formula when the goal's horizon has passed.

    `policy`: the policy that took over at step `first_seq`, at time `since` (seconds since the epoch). `seq`, `time`:
    step of the judgement; if the judgement is undecided, step of the takeover. `reason`: why the judgement is
    undecided. `verdict`: two quantities, for what happened and for the deployed policy; None if undecided. `path`: the
    pairs from the takeover on; `acted`: the policies that acted at these pairs; `inputs`: the inputs recorded there, if
    the model has inputs. `evidence`: id of the judgement's evidence, if evidence is stored.
    """

    agent: str
    formula: str
    policy: str
    outcome: TakeoverOutcome
    episode: Episode
    first_seq: int
    since: float
    seq: int
    time: float
    reason: str = ""
    verdict: Verdict | None = None
    path: tuple[tuple[State, int | None], ...] = ()
    acted: tuple[str, ...] = ()
    start_observed: bool = False
    terminated: bool = False
    evidence: str = ""
    inputs: tuple[tuple[float, ...], ...] = ()


class Calibration(msgspec.Struct, frozen=True):
    """Counts of followed forecasts as plain data, for `monitor.statistics.calibration`.

    `bins`: for each tenth of [0, 1] the number of forecasts, their sum, and the number that came true; empty: no
    forecasts. `squared`: sum of the squared errors. `expected`: expected value of `squared` if the forecasts are
    calibrated. `dropped`: number of forecasts without a known outcome.
    """

    bins: tuple[tuple[int, float, int], ...] = ()
    squared: float = 0.0
    expected: float = 0.0
    dropped: int = 0


class Calibrated(msgspec.Struct, frozen=True):
    """Counts of the followed forecasts of a formula, including those of earlier processes.

    `agent`: agent whose forecasts are counted; empty: all agents together, including forgotten ones.
    """

    formula: str
    calibration: Calibration
    agent: str = ""


Notice = (
    Received
    | Judged
    | Blind
    | AlarmMoved
    | Alert
    | Refreshed
    | OffPolicy
    | Deviates
    | RewardMismatch
    | Skipped
    | Ended
    | Forgotten
    | Trust
    | Contradictions
    | Forecast
    | Calibrated
    | TakenOver
)
