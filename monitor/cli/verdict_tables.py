"""A verdict as a table that says how each number was obtained, and as plain data for `--json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import to_builtins
from msgspec.structs import asdict
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from monitor.alarm.figures import effect_of, is_open
from monitor.alarm.phrases import basis_text
from monitor.alarm.recourse_sentences import instead
from monitor.cli.output import ExitCode
from monitor.evaluation.visits import Needed
from monitor.evidence.canonical import ONLY_LEARNED, ONLY_MISSED
from monitor.logic import parse
from monitor.logic.syntax import InterventionRef
from monitor.logic.traversal import goals
from monitor.model.action_names import ActionNames, action_in_words
from monitor.types.verdicts import Drawn, Quantity, Verdict

ShownPath = Sequence[tuple[object, int | None]]
MOST_PAIRS = 10
"""Largest number of pairs to visit that are listed."""

OUTCOMES = {
    "safe": "safe: the nominal policy meets the goal",
    "regret": "regret: the nominal policy misses the goal, the alternative would meet it",
    "unavoidable": "unavoidable: the nominal policy misses the goal, and so would the alternative",
    "undecided": "undecided",
}
AVOIDABLE = {
    "foresight": "yes, the policy that is best without hindsight meets the goal",
    "hindsight": "only with hindsight: the best decisions meet the goal, the policy that is best without it does not",
    "no": "no, nobody could have met the goal from the formula's offset on",
}
CLASSES = {"gumbel": "Gumbel-Max", "any": "every causal model", "stable": "every stable causal model"}
STYLES = {"safe": "green", "holds": "green", "regret": "bold red", "unavoidable": "bold yellow", "fails": "bold red"}


def exit_code(verdicts: list[Verdict]) -> ExitCode:
    """Return the exit code of the worst verdict. From worst to best: no, undecided, yes or a number."""
    answers = [_answer(verdict) for verdict in verdicts]
    if any(answer in {"fails", "regret", "unavoidable"} for answer in answers):
        return ExitCode.NO
    return ExitCode.UNDECIDED if "undecided" in answers else ExitCode.FINE


def verdict_data(verdict: Verdict) -> dict[str, object]:
    """Return every field of the verdict under its name, and `answer`: the outcome, `holds`, `fails` or `value`.

    Fields on learned models are left out if the verdict has no bands. Fields on missed goals are left out if no missed
    goal was examined.
    """
    hidden = ONLY_LEARNED if verdict.bands is None else frozenset[str]()
    if any(quantity.extremes is not None for quantity in verdict.quantities):
        hidden -= {"extremes", "profile_extremes"}
    hidden |= ONLY_MISSED | {"bands"}
    quantities = [
        {name: to_builtins(member) for name, member in asdict(quantity).items() if name not in hidden}
        for quantity in verdict.quantities
    ]
    fields = {name: member for name, member in asdict(verdict).items() if name not in hidden}
    learned = {} if verdict.bands is None else {"bands": to_builtins(verdict.bands)}
    return {
        "answer": _answer(verdict),
        **fields,
        "formula": verdict.formula.strip(),
        "quantities": quantities,
        "drawn": to_builtins(verdict.drawn),
        **learned,
        **({} if verdict.recourse is None else {"recourse": to_builtins(verdict.recourse)}),
    }


def visits_text(needed: Needed, names: ActionNames) -> Text:
    """Return an estimate of how many visits of which pairs would make the guaranteed bands narrow enough."""
    begin = f"  visits: the guaranteed band is {needed.now:.3g} wide"
    if needed.visits is None:
        return Text(
            f"{begin}; no recordings bring it to {needed.width:g}: causal models alone leave {needed.limit:.3g}\n"
        )
    if not needed.pairs:
        return Text(f"{begin}, no more than {needed.width:g}\n")
    pairs = "pair" if len(needed.pairs) == 1 else f"of {len(needed.pairs)} pairs"
    lines = [f"{begin}; an estimate: about {needed.visits:,} visits of each {pairs} bring it to {needed.width:g}"]
    lines += [
        f"    action {names.sent(action)} in state {state}: " + (f"{have:,} so far" if have else "never recorded")
        for state, action, have in needed.pairs[:MOST_PAIRS]
    ]
    if len(needed.pairs) > MOST_PAIRS:
        lines.append(f"    and {len(needed.pairs) - MOST_PAIRS} more (--json lists all)")
    lines.append(
        "  if further recordings show the fractions seen so far, and a pair never recorded behaves like the action"
    )
    lines.append("  recorded most in its state")
    return Text("\n".join(lines) + "\n")


def verdict_table(verdict: Verdict, path: ShownPath, names: ActionNames) -> RenderableType:
    """Return the formula, the answer, each quantity with its world, and the profile of a regret formula.

    `names`: names of the actions.
    """
    parts: list[RenderableType] = [Text(verdict.formula.strip(), style="bold"), _headline(verdict)]
    parts += [_quantity(quantity, verdict, path) for quantity in verdict.quantities]
    if verdict.profile:
        parts.append(_profile(verdict))
    if verdict.likely:
        now = ", ".join(f"{name} {_number(chance)}" for name, chance in verdict.likely.items())
        parts.append(Text(f"  probability now: {now}"))
    if verdict.believed:
        now = ", ".join(f"{name} {_number(chance)}" for name, chance in verdict.believed.items())
        parts.append(Text(f"  likeliest states now: {now}"))
    parts += [Text(f"  {line}") for line in _recourse(verdict)]
    if verdict.drawn is not None:
        parts.append(_drawn(verdict.drawn, verdict))
    if verdict.tiers:
        parts.append(Text(f"  noise of the steps looked back on: {', '.join(verdict.tiers)}"))
    parts += [Text(f"  {line}") for line in _learned(verdict, names)]
    if verdict.reason:
        parts.append(Text(f"  {verdict.reason}"))
    if verdict.start_dropped:
        parts.append(Text("  the start of the episode is not in this path: @-k counts from the oldest pair"))
    return Group(*parts, Text(""))


def _answer(verdict: Verdict) -> str:
    match verdict:
        case Verdict(outcome=str(outcome)):
            return outcome
        case Verdict(holds=bool(holds)):
            return "holds" if holds else "fails"
        case Verdict(value=float()):
            return "value"
        case _:
            return "undecided"


def _headline(verdict: Verdict) -> Text:
    answer = _answer(verdict)
    words = OUTCOMES.get(answer, answer)
    if verdict.value is not None:
        words = _range(verdict.value, verdict.quantities[0].extremes)
    line = Text("  ").append(words, style=STYLES.get(answer, ""))
    if verdict.robust is not None:
        guaranteed = verdict.bands is not None and verdict.bands.delta is not None
        what = "model in the guaranteed band" if guaranteed else "causal model"
        agrees = f"no {what} changes this" if verdict.robust else f"another {what} could change this"
        line.append(f"; {agrees}")
    if (effect := effect_of(verdict)) is not None:
        line.append(f"; effect {effect:+.6g}")
        if verdict.effect_bounds is not None:
            line.append(f", {_bounds(verdict.effect_bounds, verdict)}")
        for band in _bands_of(verdict.effect_credible, verdict.effect_guaranteed, verdict):
            line.append(f", {band}")
    return line


def _bands_of(
    credible: tuple[float, float] | None, guaranteed: tuple[float, float] | None, verdict: Verdict
) -> list[str]:
    """Return the bands of a value of a learned model."""
    how = verdict.bands
    if how is None:
        return []
    named = []
    if credible is not None and how.level is not None:
        named.append(f"credible ({how.level:.4g}) {_interval(credible)}")
    if guaranteed is not None:
        named.append(f"guaranteed {_interval(guaranteed)}")
    return named


def _learned(verdict: Verdict, names: ActionNames) -> Iterator[str]:
    """Yield lines on the data behind an answer of a learned model, and on how its bands were obtained."""
    how = verdict.bands
    if how is None:
        return
    if verdict.support == 0:
        yield "rests on rows that were never recorded (within 90 % of the weight)"
    elif verdict.support is not None:
        yield f"rests on at least {verdict.support:,} visits of each row that matters (90 % of the weight)"
    if verdict.to_visit:
        pairs = ", ".join(f"action {names.sent(action)} in state {state}" for state, action in verdict.to_visit)
        yield f"to narrow it, visit: {pairs}"
    if how.draws:
        yield f"credible: {how.draws} models drawn from the posterior with seed {how.seed}"
    if how.fits:
        yield f"credible: {how.fits} fits to resampled recordings"
    if how.delta is not None:
        sure = f"with probability {1 - how.delta:.4g}"
        yield f"guaranteed: over every causal model and every row in the confidence set, {sure}"
    if how.reason:
        yield how.reason


def _recourse(verdict: Verdict) -> Iterator[str]:
    """Yield lines that say whether other decisions could have met a missed goal, and which decisions."""
    recourse = verdict.recourse
    if recourse is None:
        return
    if recourse.avoidable is not None:
        robust = {None: "", True: "; no causal model changes this", False: "; another causal model could change this"}
        yield f"avoidable: {AVOIDABLE[recourse.avoidable]}{robust[recourse.robust]}"
        hindsight = f"; best with hindsight {_number(recourse.best)}  exact" if verdict.offset else ""
        yield f"optimal {_number(recourse.optimal)}  exact{hindsight}"
    changes = recourse.changes
    if changes is not None:
        where = f" in state {changes.state}" if isinstance(changes.state, int) else ""  # a world's path has numbers
        first = f"{instead(changes, action_in_words)}{where} (@{changes.offset})"
        several = "" if changes.count == 1 else f"{changes.count} decisions, the first "
        known = " with hindsight" if verdict.offset else ""
        how = f"{changes.samples:,} draws" if changes.samples else "exact"
        yield f"changed{known}: {several}{first}; value {_number(changes.value)}  {how}"
    if recourse.reason:
        yield f"avoidable: not known; {recourse.reason}" if recourse.avoidable is None else recourse.reason


def _quantity(quantity: Quantity, verdict: Verdict, path: ShownPath) -> RenderableType:
    """Return a table of one quantity: its value, how it was obtained, the comparison, and the counterfactual world."""
    table = Table.grid(padding=(0, 2))
    obtained = f"{_range(quantity.value, quantity.extremes)}  {verdict.method}"
    if is_open(quantity.extremes):
        obtained += " at both extremes of what was never recorded"
    if quantity.samples:
        obtained += f", {quantity.samples:,} samples"
    if quantity.bounds is not None and not is_open(quantity.extremes):
        obtained += f", {_bounds(quantity.bounds, verdict, quantity.confidence)}"
    table.add_row("    value", obtained)
    for band in _bands_of(quantity.credible, quantity.guaranteed, verdict):
        table.add_row("", band)
    if quantity.support is not None:
        table.add_row("    support", f"{quantity.support:,} visits")
    if quantity.rests_on is not None:
        table.add_row("    rests on", basis_text(quantity.rests_on))
    if quantity.threshold is not None:
        met = {True: "met", False: "missed", None: "undecided"}[quantity.holds]
        table.add_row("    bound", f"{_number(quantity.threshold)}: {met}")
    table.add_row("    world", _world(quantity, path))
    for change in _deciding(quantity):
        if decided := _decided(change, _back(quantity, path)):
            table.add_row("    decided", decided)
    text = " ".join(quantity.text.split())
    same = text == " ".join(verdict.formula.split())
    return table if same else Group(Text(f"  {text}"), table)


def _deciding(quantity: Quantity) -> list[InterventionRef]:
    """Return the interventions of a quantity that choose actions for its goal."""
    return [change for _, changes, _ in goals(parse(quantity.text)) for change in changes if change.decides]


def _decided(change: InterventionRef, back: int) -> str:
    """Return a phrase that says whether decisions for the goal used hindsight.

    Return "" if no transition was observed since the world began, so that there is no hindsight.
    """
    if change.kind == "optimal":
        return "without hindsight, as well as possible"
    if back == 0:
        return ""
    # for `optimal` there is no hint, because no formula gives its value as a number
    return "with hindsight, which no policy has" + (": compare optimal" if change.name == "best" else "")


def _back(quantity: Quantity, path: ShownPath) -> int:
    """Return the number of transitions observed since the world began."""
    return quantity.offset if quantity.offset >= 0 else len(path) + quantity.offset


def _world(quantity: Quantity, path: ShownPath) -> str:
    """Return a phrase on where the counterfactual world begins, and which noise is inferred from observations."""
    back = _back(quantity, path)
    used = f"@{quantity.offset}" + (", clipped to the path" if quantity.clipped else "")
    state = path[len(path) - 1 - back][0]
    if back == 0:
        return f"begins in the last state, {state} ({used}); noise prior throughout"
    steps = "step" if back == 1 else "steps"
    noise = "noise inferred from the observed transitions since, prior beyond"
    return f"begins in state {state}, {back} {steps} before the last ({used}); {noise}"


def _profile(verdict: Verdict) -> Table:
    """Return the values of `regret` at each offset, or, for `handover`, those of its goal now."""
    regret = verdict.outcome is not None
    first, helps = ("intervened at", "the latest that helps") if regret else ("its goal", "not too late")
    table = Table(f"  {first}", "nominal", "alternative", "effect", box=None, pad_edge=True, header_style="dim")
    ends = dict(enumerate(verdict.profile_extremes))
    for offset, (nominal, alternative) in sorted(verdict.profile.items(), reverse=True):
        latest = f"  <- {helps}" if offset == verdict.latest_useful else ""
        known = ends.get(offset)
        mine, other = (None, None) if known is None else (known[:2], known[2:])
        effect = "unknown" if is_open(mine) or is_open(other) else f"{alternative - nominal:+.6g}"
        table.add_row(f"  @{offset}", _range(nominal, mine), _range(alternative, other), f"{effect}{latest}")
    return table


def _range(value: float, extremes: tuple[float, float] | None) -> str:
    """Return a value, or the interval that is known to contain it."""
    return _interval(extremes) if extremes is not None and is_open(extremes) else _number(value)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.10g}"


def _drawn(drawn: Drawn, verdict: Verdict) -> Text:
    text = f"  sampled with seed {drawn.seed}"
    if verdict.value is not None:  # the interval of `=?` already states its confidence
        return Text(text)
    text += f"; `fails` or `regret` is wrong with probability at most {drawn.alpha:.3g}"
    nominal = " (not guaranteed for R and delta: test 'paper')" if drawn.sampling.test == "paper" else ""
    return Text(f"{text}, the opposite answer with at most {drawn.beta:.3g}{nominal}")


def _interval(band: tuple[float, float]) -> str:
    return f"[{band[0]:.6g}, {band[1]:.6g}]"


def _bounds(bounds: tuple[float, float], verdict: Verdict, confidence: float | None = None) -> str:
    if verdict.method == "sampled":
        certainty = "" if confidence is None else f" with confidence {confidence:.6g}"
        return f"in [{bounds[0]:.6g}, {bounds[1]:.6g}]{certainty}"
    loose = " (outer bounds)" if verdict.belief is not None else ""
    return f"in [{bounds[0]:.6g}, {bounds[1]:.6g}] under {CLASSES[verdict.causal_model]}{loose}"
