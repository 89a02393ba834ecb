"""Input files of `cfmon check` (a recorded path, formulas, policies), and the location of the shipped data."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from monitor.errors import InputError, PathError, PolicyError
from monitor.model import MDP, encode_action, encode_state
from monitor.model.encode import StateEncoder, encode_signal
from monitor.policy import as_table
from monitor.policy.controller import as_reader
from monitor.stream.decode import validate
from monitor.types.specs import StreamSettings
from monitor.types.stream_events import Observation, ObservedPair

if TYPE_CHECKING:
    from monitor.evaluation.models import AnyPolicy
    from monitor.stream.world_adapter import WorldAdapter
    from monitor.worlds import CheckedWorld
    from monitor.worlds.world_policies import WorldPolicy

MAX_FILE_BYTES = 64 << 20
"""Largest size of an input file, in bytes. A path of a million steps takes about 10 MB."""

WorldPair = tuple[tuple[float, ...], int | None, tuple[float, ...]]
STEP: Final = ("state", "action", "inputs")

MAX_LINES = 5_000
"""Largest number of lines in a file of formulas.

Each formula keeps the line breaks of all lines before it, so memory grows with the square of the number of lines.
"""

LONGEST_SHOWN = 80
"""Largest number of characters of an invalid value in an error message."""


def data_file(relative: str) -> Path:
    """Return the path of a file of `config/` or `policies/`.

    It is in the repository or in the installed wheel.
    """
    package = Path(__file__).resolve().parent.parent
    in_repository = package.parent / relative
    return in_repository if in_repository.exists() else package / "_data" / relative


def read_path(file: Path, model: MDP, *, terminated: bool = False) -> list[ObservedPair]:
    """Return the (state, action) pairs of a file, oldest first; the last action may be null or empty.

    If states are hidden, the pairs are (observation, action), and each part may be null or empty.

    A `.csv` file has two columns; a header `state,action` is allowed. Any other file is JSON: one list of pairs, or one
    value on each line. A pair is `[state, action]` or `{"state": ..., "action": ...}`. States and actions are indices
    or the model's names. `terminated`: the episode ended in the last state, so this state is replaced by its copy in
    `MDP.ended_as`, as on the stream.

    Raises:
        PathError: the message names the file, the line (or the place in the list) and the reason.
    """
    rows = _rows(file, unknown=model.emissions is not None)
    path = [_pair(raw, model, where) for where, raw in rows]
    if model.emissions is not None:
        return path
    for (where, _), (_, action) in zip(rows[:-1], path, strict=False):
        if action is None:
            raise PathError(f"{where}: only the last pair may lack its action")
    if terminated:
        state, action = path[-1]
        assert state is not None, "it is seen"
        path[-1] = model.ended(state), action
    return path


def read_world_path(file: Path, world: CheckedWorld, nominal: WorldPolicy) -> list[WorldPair]:
    """Return the (state, action, inputs) of each message or list in a file, in a world with numbers.

    State and inputs are lists or maps, as in a message of the agent. The file has JSON or JSON lines. Errors are as for
    `read_path`.
    """
    from monitor.stream.world_adapter import WorldAdapter  # noqa: PLC0415 - only for worlds

    adapter = WorldAdapter(world, StreamSettings(encoder="features"), nominal)
    return [_step(raw, adapter, where) for where, raw in _rows(file)]


def read_formulas(file: Path) -> list[str]:
    """Return the formulas of a file. Each line is a formula, indented lines continue it, and `//` starts a comment.

    Each formula keeps the line breaks before it in the file, so that errors give the line numbers of the file.
    """
    blocks: list[tuple[int, list[str]]] = []
    written = _read(file, "formulas").splitlines()
    if len(written) > MAX_LINES:
        raise PathError(f"{file}: {len(written)} lines; a file of formulas has at most {MAX_LINES}, so split it")
    for number, line in enumerate(written):
        if blocks and line[:1].isspace() and line.strip():
            blocks[-1][1].append(line)
        else:
            blocks.append((number, [line]))
    formulas = ["\n" * number + "\n".join(lines) for number, lines in blocks if _has_content(lines)]
    if not formulas:
        raise PathError(f"{file}: the file has no formula; write one a line")
    return formulas


def read_policy(file: Path, model: MDP) -> AnyPolicy:
    """Return the policy of a manifest or of a `.json` file.

    A `.json` file has for each state an action or a list of A probabilities. If states are hidden, the file has these
    for each observation.
    """
    if file.suffix.lower() != ".json":
        from monitor.evaluation.models import load_any_policy  # noqa: PLC0415 - onnxruntime only where a network is named

        return load_any_policy(file, model).table
    try:
        value = _parsed(_read(file, "policy"), str(file))
    except json.JSONDecodeError as error:
        raise PolicyError(f"{file}, line {error.lineno}: not JSON ({error.msg})") from error
    try:
        return as_table(value, model) if model.emissions is None else as_reader(value, model)
    except PolicyError as error:
        raise PolicyError(f"{file}: {error}") from error


def _read(file: Path, what: str) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise PathError(f"the {what} file {file} is larger than {MAX_FILE_BYTES:,} bytes")
        return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PathError(f"cannot read the {what} file {file}: {reason}") from error


def _rows(file: Path, *, unknown: bool = False) -> list[tuple[str, object]]:
    """Return the place of each pair in a file, and the pair as it is in the file.

    `unknown`: if True, a row of empty cells is a pair with both parts unknown.
    """
    text = _read(file, "path")
    rows = _csv_rows(text, file, unknown=unknown) if file.suffix.lower() == ".csv" else _json_rows(text, file)
    found = [(f"{file}, {place}", raw) for place, raw in rows]
    if not found:
        raise PathError(f"{file}: the path is empty; it needs at least one [state, action] pair")
    return found


def _has_content(lines: list[str]) -> bool:
    return any(line.split("//")[0].strip() for line in lines)


def _csv_rows(text: str, file: Path, *, unknown: bool) -> Iterator[tuple[str, object]]:
    for number, row in enumerate(_cells(text, file), start=1):
        cells = [cell.strip() for cell in row]
        header = number == 1 and [cell.lower() for cell in cells] in (["state", "action"], ["observation", "action"])
        if (any(cells) or (unknown and len(cells) > 1)) and not header:
            yield f"line {number}", [_number_or_name(cell) for cell in cells]


def _cells(text: str, file: Path) -> Iterator[list[str]]:
    reader = csv.reader(StringIO(text))
    try:
        yield from reader
    except csv.Error as error:
        raise PathError(f"{file}, line {reader.line_num}: not CSV ({error})") from error


def _number_or_name(cell: str) -> int | str | None:
    try:
        return int(cell)
    except ValueError:
        return cell or None


def _json_rows(text: str, file: Path) -> Iterator[tuple[str, object]]:
    try:
        document = _parsed(text, str(file))
    except json.JSONDecodeError:
        yield from _json_lines(text, file)
        return
    match document:
        case [list() | dict(), *_]:
            yield from ((f"pair {number}", pair) for number, pair in enumerate(document, start=1))
        case []:
            return
        case _:  # one pair, in a file of one line
            yield "line 1", document


def _json_lines(text: str, file: Path) -> Iterator[tuple[str, object]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", _parsed(line, f"{file}, line {number}")
        except json.JSONDecodeError as error:
            raise PathError(f"{file}, line {number}, column {error.colno}: not JSON ({error.msg})") from error


def _parsed(text: str, where: str) -> object:
    """Parse JSON.

    Raises `json.JSONDecodeError` if it is invalid, and PathError if it is too deep or a number is too long.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise PathError(f"{where}: cannot be read as JSON ({error})") from error


def _shown(raw: object) -> str:
    text = json.dumps(raw)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _pair(raw: object, model: MDP, where: str) -> ObservedPair:
    what = "state" if model.emissions is None else "observation"
    match raw:
        case [state, action]:
            pass
        case [state]:
            action = None
        case dict() if what in raw:
            state, action = raw[what], raw.get("action")
        case _:
            raise PathError(f"{where}: expected [{what}, action], found {_shown(raw)}")
    try:
        return _seen(state, model), None if action is None else _action(action, model)
    except InputError as error:
        raise PathError(f"{where}: {error.detail}") from error


def _step(raw: object, adapter: WorldAdapter, where: str) -> WorldPair:
    if isinstance(raw, list) and len(raw) <= len(STEP):
        raw = dict(zip(STEP, raw, strict=False))
    if not isinstance(raw, dict) or "state" not in raw:
        raise PathError(f"{where}: expected [state, action, inputs] or a message, found {_shown(raw)}")
    values: Iterator[Any] = (tuple(each) if isinstance(each := raw.get(key), list) else each for key in STEP)
    state, action, inputs = values
    last = action is None  # later checks of the path refuse a null elsewhere
    try:
        message = validate(Observation("path", "path", 0, state, action, truncated=last, inputs=inputs))
        found: WorldPair = adapter.read(message)
    except InputError as error:
        raise PathError(f"{where}: {error.detail}") from error
    return found


def _seen(raw: object, model: MDP) -> int | None:
    if model.emissions is None:
        return _state(raw, model)
    return None if raw is None else encode_signal(model, raw)


def _state(raw: object, model: MDP) -> int:
    match raw:
        case bool():
            raise InputError("unknown_state", f"{raw} is not a state; give its index or its name")
        case int():
            return encode_state(model, "index", raw)
        case str():
            return encode_state(model, "name", raw)
        case list():
            return encode_state(model, _encoder_of_lists(model), tuple(raw))
        case _:
            raise InputError("unknown_state", f"{_shown(raw)} is not a state; give its index or its name")


def _encoder_of_lists(model: MDP) -> StateEncoder:
    """Return the encoder for a list of values: the model's encoder that takes lists, or else `valuation`."""
    if model.valuations:
        return "valuation"
    return "nearest" if model.centres is not None else "bins" if model.bin_edges else "valuation"


def _action(raw: object, model: MDP) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise InputError("unknown_action", f"{_shown(raw)} is not an action; give its index, its number or its name")
    return encode_action(model, raw)
