"""Make the request of `cfmon init` from options, a file of settings, the recordings, and answers on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from monitor.authoring.learning.left_out import RowLimit
from monitor.cli.init_base import InitRequest
from monitor.cli.init_columns import ColumnOptions, RecordedColumns
from monitor.cli.init_parts import check_folder
from monitor.cli.init_settings import InitSettings, read_settings, settings_text
from monitor.cli.learn_dynamics import checked_fits
from monitor.cli.output import say
from monitor.errors import ConfigError, printable
from monitor.types.specs import AlarmSpec

if TYPE_CHECKING:
    from monitor.authoring.learning.columns import Roles

EXAMPLE: Final = "cfmon init FOLDER --recordings steps.csv --unsafe 'death: done and reward < 0'"


def on_terminals() -> bool:
    """Return whether the user can be asked. This needs a terminal for both input and output."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def settled_request(
    folder: Path | None,
    file: Path | None,
    given: Mapping[str, Any],
    columns: Mapping[str, str],
    *,
    force: bool,
    quiet: bool,
) -> InitRequest:
    """Return the request. On a terminal, the user is asked for all that is missing or unclear.

    Args:
        folder: folder to write to; None: the folder of `file`.
        file: file of settings; options override its settings.
        given: keys of `InitSettings` -> value, for the options that were given.
        columns: options of columns -> value, for the options that were given.
        force: overwrite files.
        quiet: print nothing, and ask nothing.

    Raises ConfigError, RecordingError or ModelError if something is missing or wrong or, without a terminal, unclear.
    """
    read = InitSettings() if file is None else read_settings(file)
    if folder is None:
        if file is None:
            raise ConfigError(f"missing: FOLDER (where to write). For example: {EXAMPLE}")
        folder = file.parent
    check_folder(folder, file, force=force)
    settings = _overruled(read, given, inputs=columns.get("inputs", "")).model_copy(
        update={**given, "missing": read.missing | given.get("missing", {})}
    )
    if settings.recordings and settings.simulator:
        raise ConfigError("give --recordings or --simulator, not both: one of them makes the model")
    asks = on_terminals() and not quiet
    if asks and not (settings.recordings or settings.simulator):
        settings = _source(settings)
    request = partial(_request, folder, force=force, quiet=quiet)
    if not settings.recordings:
        settings = _simulated(settings, asks=asks)
        return request(settings, {}, (), _record(settings, read, file, None), guessed=False)
    found = RecordedColumns(settings, ColumnOptions(columns))
    guessed = found.proposal.guessed
    if not quiet:
        found.show()
    if asks and guessed:
        found.correct()
    elif not asks:
        found.refuse_unsure(file)
    roles, understood = found.settled_roles()
    settings = _unsafe(settings, found, understood, asks=asks, quiet=quiet)
    settings = settings.model_copy(update={"missing": found.missing, "time_limit": found.time_limit})
    record = _record(settings, read, None if guessed or columns else file, found)
    said = any(each.settled and "input" in each.roles for each in found.proposal.columns)
    return request(settings, roles, understood.inputs, record, guessed=not said)


def _overruled(read: InitSettings, given: Mapping[str, Any], inputs: str) -> InitSettings:
    """Return a file's settings without the settings that contradict an option.

    A table has no inputs, and a world has no bins.
    """
    world = True if inputs else given.get("dynamics")
    if world is None and any(given.get(name) is not None for name in ("bins", "abstraction")):
        world = False
    if world:
        return read.model_copy(update={"bins": None, "abstraction": None, "dynamics": read.dynamics or None})
    if world is False:
        other = {"bins": "abstraction", "abstraction": "bins"}
        unsaid = [theirs for own, theirs in other.items() if given.get(own) is not None]
        return read.model_copy(update={"dynamics": None, **dict.fromkeys(unsaid)})
    return read


def _record(settings: InitSettings, read: InitSettings, file: Path | None, found: RecordedColumns | None) -> str:
    """Return the text of the settings file that repeats this run: the given file's own text if no option adds to it."""
    if file is not None and settings == read:
        return file.read_text("utf-8")
    return settings_text(settings, *((None,) if found is None else (found.proposal, found.reading_lines())))


def _simulated(settings: InitSettings, *, asks: bool) -> InitSettings:
    """Return the settings for a simulator, and ask for what is missing. Raises ConfigError if nobody can be asked."""
    missing = _missing(settings)
    if missing and not asks:
        raise ConfigError(f"missing: {'; '.join(missing)}. For example: {EXAMPLE}")
    if settings.unsafe is None:
        settings = settings.model_copy(update={"unsafe": typer.prompt(SIMULATED).strip()})
    return _policies(settings) if missing else settings


def _unsafe(settings: InitSettings, found: RecordedColumns, roles: Roles, *, asks: bool, quiet: bool) -> InitSettings:
    """Return the settings with the condition of the unsafe label, checked against the recordings."""
    if not quiet:
        found.show_missing(roles)
    if settings.unsafe is not None:
        unsafe = found.at_ends(settings.unsafe, roles)
        settings = settings.model_copy(update={"unsafe": unsafe})
        _, words = found.holds(unsafe, roles)
        if not quiet:
            say(f"  {printable(words)}")
        return settings
    if not asks:
        raise ConfigError(f"missing: {'; '.join(_missing(settings))}. For example: {EXAMPLE}")
    return _policies(settings.model_copy(update={"unsafe": found.at_ends(found.ask_unsafe(roles), roles)}))


SIMULATED: Final = (
    "What is unsafe: a label of the simulator, or NAME: CONDITION, such as  unsafe: terminated and reward < 0"
)


def _request(
    folder: Path,
    settings: InitSettings,
    roles: dict[str, Any],
    inputs: tuple[str, ...],
    record: str,
    *,
    guessed: bool,
    force: bool,
    quiet: bool,
) -> InitRequest:
    said = {"bins": settings.bins, "abstraction": settings.abstraction, "label": list(settings.label), "prior": None}
    return InitRequest(
        folder, tuple(map(Path, settings.recordings)), settings.simulator, settings.unsafe, settings.nominal,
        settings.fallback, roles, said, settings.topic, settings.steps, settings.seed, settings.offset,
        AlarmSpec(for_=settings.for_, keep=settings.keep), force=force, quiet=quiet, accept=settings.accept_model,
        dynamics=settings.dynamics, inputs=inputs, inputs_guessed=guessed, missing=settings.missing, record=record,
        limit=RowLimit.parsed(settings.skip_bad),
        fits=checked_fits(settings.fits), step_seconds=settings.step_seconds,
    )  # fmt: skip


def _missing(settings: InitSettings) -> list[str]:
    missing = []
    if not (settings.recordings or settings.simulator):
        missing.append("--recordings FILE or --simulator ENV (where the model comes from)")
    if settings.unsafe is None:
        missing.append("--unsafe 'NAME: CONDITION' (what must not happen)")
    if settings.simulator and settings.nominal is None:
        missing.append("--nominal SOURCE (the agent's policy; a simulator does not show it)")
    return missing


def _source(settings: InitSettings) -> InitSettings:
    answer = typer.prompt("Recordings (a file or folder), or a simulator (gymnasium:ID or module.py:make_env)").strip()
    is_simulator = answer.startswith("gymnasium:") or ".py:" in answer
    return settings.model_copy(update={"simulator": answer} if is_simulator else {"recordings": (answer,)})


def _policies(settings: InitSettings) -> InitSettings:
    update: dict[str, str | None] = {}
    if settings.nominal is None:
        default = None if settings.simulator else "estimate"
        answer = typer.prompt("The agent's policy (file or module.py:function)", default=default).strip()
        update["nominal"] = None if answer == "estimate" else answer
    if settings.fallback is None:
        question = "The fallback policy (file, module.py:function or do(ACTION); safest: computed on the model)"
        answer = typer.prompt(question, default="safest").strip()
        update["fallback"] = None if answer == "safest" else answer
    return settings.model_copy(update=update)
