"""A verdict in words: a table whose numbers say how they were obtained, and the same as plain data for `--json`."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from monitor.cli.output import ExitCode
from monitor.types import Quantity, Verdict

__all__ = ["exit_code", "verdict_data", "verdict_table"]

OUTCOMES = {
    "safe": "safe: the nominal policy meets the goal",
    "regret": "regret: the nominal policy misses the goal, the alternative would meet it",
    "unavoidable": "unavoidable: the nominal policy misses the goal, and so would the alternative",
    "undecided": "undecided",
}
STYLES = {"safe": "green", "holds": "green", "regret": "bold red", "unavoidable": "bold yellow", "fails": "bold red"}


def exit_code(verdicts: list[Verdict]) -> ExitCode:
    """The worst of the answers: a `no` outweighs an undecided one, which outweighs yes and numbers."""
    answers = [_answer(verdict) for verdict in verdicts]
    if any(answer in {"fails", "regret", "unavoidable"} for answer in answers):
        return ExitCode.NO
    return ExitCode.UNDECIDED if "undecided" in answers else ExitCode.FINE


def verdict_data(verdict: Verdict) -> dict[str, object]:
    """Every field of the verdict under its own name; `answer` says in a word which one carries the answer."""
    return {"answer": _answer(verdict), **asdict(verdict), "formula": verdict.formula.strip()}


def verdict_table(verdict: Verdict) -> RenderableType:
    """The formula, the answer in a sentence, each quantity on a row, and for regret the profile over offsets."""
    parts: list[RenderableType] = [Text(verdict.formula.strip(), style="bold"), _headline(verdict)]
    parts.append(_quantities(verdict))
    if verdict.profile:
        parts.append(_profile(verdict))
    if verdict.start_dropped:
        parts.append(Text("the episode's start is no longer held: @-k counts from the oldest pair of this path"))
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
    words = f"{_number(verdict.value)}" if answer == "value" else OUTCOMES.get(answer, answer)
    line = Text("  ").append(words, style=STYLES.get(answer, ""))
    if verdict.bounds is not None:
        line.append(f", in {_interval(verdict.bounds)} under {_models(verdict)}")
    if verdict.effect is not None:
        line.append(f"; effect {verdict.effect:+.6g}")
        if verdict.effect_bounds is not None:
            line.append(f" in {_interval(verdict.effect_bounds)}")
    if verdict.robust is not None:
        agrees = "no causal model changes this" if verdict.robust else "another causal model could change this"
        line.append(f"; {agrees}")
    return line


def _quantities(verdict: Verdict) -> Table:
    columns = ["quantity", "value", "obtained", "threshold", "holds", "offset"]
    if any(quantity.bounds is not None for quantity in verdict.quantities):
        columns.insert(3, f"under {_models(verdict)}")
    table = Table(*columns, box=None, pad_edge=True, header_style="dim")
    for quantity in verdict.quantities:
        cells = _cells(quantity, verdict)
        table.add_row(*cells if len(columns) > len(cells) - 1 else [*cells[:3], *cells[4:]])
    return table


def _cells(quantity: Quantity, verdict: Verdict) -> list[str]:
    return [
        quantity.text,
        _number(quantity.value),
        verdict.method,
        _interval(quantity.bounds) if quantity.bounds is not None else "-",
        _number(quantity.threshold),
        {True: "yes", False: "no", None: "-"}[quantity.holds],
        f"@{quantity.offset}" + (" (clipped to the path)" if quantity.clipped else ""),
    ]


def _profile(verdict: Verdict) -> Table:
    table = Table("intervened at", "nominal", "alternative", "effect", box=None, pad_edge=True, header_style="dim")
    for offset, (nominal, alternative) in sorted(verdict.profile.items(), reverse=True):
        latest = "  <- the latest that helps" if offset == verdict.latest_useful else ""
        effect = f"{alternative - nominal:+.6g}{latest}"
        table.add_row(f"@{offset}", _number(nominal), _number(alternative), effect)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.10g}"


def _interval(bounds: tuple[float, float]) -> str:
    return f"[{bounds[0]:.6g}, {bounds[1]:.6g}]"


def _models(verdict: Verdict) -> str:
    return {"gumbel": "Gumbel-Max", "any": "every causal model", "stable": "every stable causal model"}[
        verdict.causal_model
    ]
