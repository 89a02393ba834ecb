"""Every reader of bytes that others wrote, with what it promises: the errors it declares, and nothing else.

A reader here takes bytes and returns nothing. What it raises is a bug; so is a promise about what was read that does
not hold. Other inputs than bytes (a file, an agent's topic) are made from the bytes.
"""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from functools import cache
from typing import Any, Final, get_args

import msgpack
import numpy as np
import onnx

from monitor.authoring.formats.drn import read_drn
from monitor.authoring.formats.pomdp import read_pomdp
from monitor.authoring.formats.prism_explicit import read_combined, read_prism
from monitor.authoring.formats.umb import read_umb
from monitor.authoring.formats.umb_write import umb_files
from monitor.authoring.learning.column_facts import head_of
from monitor.authoring.learning.column_roles import proposed
from monitor.authoring.learning.columns import guessed
from monitor.authoring.learning.mcap_rows import McapRows
from monitor.authoring.learning.row_files import open_rows
from monitor.authoring.learning.table_events import TableEvents
from monitor.cli.input_files import read_formulas, read_path, read_policy
from monitor.errors import (
    ConfigError,
    EvidenceError,
    FormulaError,
    InputError,
    LimitError,
    ModelError,
    ModelWarning,
    PathError,
    PolicyError,
    RecordingError,
)
from monitor.evidence.document import pack_evidence, read_evidence
from monitor.evidence.verification import examine
from monitor.exact import validate as validate_formula
from monitor.logic import parse, print_formula
from monitor.model import MDP
from monitor.model.encode import StateEncoder, encode_action, encode_state
from monitor.model.npz import canonical_bytes, read_model
from monitor.picture import draw_alarm
from monitor.policy.manifest import read_manifest
from monitor.policy.onnx_scan import refuse_unsafe
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.mqtt.codec import CONNACK, MAX_ID, Codec, Version
from monitor.sidecar.mqtt.properties import MalformedPacketError
from monitor.sidecar.parquet_recording import ParquetRecording
from monitor.sidecar.pipeline import CommonState, StoredAgent
from monitor.sidecar.recording import Recording
from monitor.stream.decode import REASONS, agent_of, decode, validate
from monitor.stream.snapshot import seal, unseal
from monitor.types import Instant
from monitor.worlds import Feature
from monitor.worlds.resampling import ResampledInputs
from tests.evidence.rederived import rederive
from tests.fuzz.connection import answer
from tests.fuzz.world import folder, loaded, parquet_folder

__all__ = [
    "config",
    "decoder",
    "drn",
    "evidence",
    "explicit",
    "forged",
    "formula",
    "http",
    "manifest",
    "model",
    "onnx_scan",
    "parquet",
    "path",
    "pipeline",
    "pomdp",
    "recording",
    "snapshot",
    "table",
    "topic",
    "umb",
    "wire",
]

TABLES: Final = ("csv", "jsonl", "parquet", "arrow", "mcap")
ENCODERS: Final = get_args(StateEncoder)
SMALL_MODEL: Final = 1 << 22
"""Unpacked bytes of a model: a few kilobytes deflated may be a gigabyte, and to unpack that is no fault."""


def decoder(data: bytes) -> None:
    """A message: `InputError` with a known reason, or an observation that is one by the rules of the library too."""
    try:
        observation = decode("ada", data)
    except InputError as error:
        _promised(error.reason in REASONS and len(error.detail) < 600, f"a reason of the list: {error}")
        return
    validate(observation)
    world = loaded().mdp
    for encoder in ENCODERS:
        for seen in (observation.state, observation.observation):
            if seen is not None:
                with contextlib.suppress(InputError):
                    assert 0 <= encode_state(world, encoder, seen) < world.states
    if observation.action is not None:
        with contextlib.suppress(InputError):
            assert 0 <= encode_action(world, observation.action) < world.actions


def topic(data: bytes) -> None:
    """A topic: a name that may stand in a topic, a label and a file's name, or `InputError`."""
    try:
        name = agent_of(data.decode("utf-8", "surrogatepass" if len(data) % 2 else "replace"), "agents/+/steps")
    except UnicodeDecodeError:
        return
    except InputError as error:
        _promised(error.reason in REASONS, f"a reason of the list: {error}")
        return
    assert name.isascii()
    assert 1 <= len(name) <= 64
    assert not set(name) & set("/+# \n")


def formula(data: bytes) -> None:
    """A formula: `FormulaError` at a place in the text, or one whose print is read as the same formula."""
    written = data.decode("utf-8", "replace")
    try:
        read = parse(written)
    except FormulaError as error:
        _promised(1 <= error.line <= written.count("\n") + 1 and error.column >= 1, f"a place in the text: {error}")
        return
    printed = print_formula(read)
    with contextlib.suppress(FormulaError):  # the print has parentheses, so it may be too long
        assert print_formula(parse(printed)) == printed
    world = loaded()
    with contextlib.suppress(FormulaError, LimitError):
        validate_formula(read, world.mdp, world.tables, written)


def config(data: bytes) -> None:
    """A configuration file: `ConfigError`, or a configuration. Comments `#env NAME=VALUE` are the environment."""
    file = folder() / "fuzzed.yaml"
    file.write_bytes(data)
    lines = [line[5:].decode("utf-8", "replace").partition("=") for line in data.split(b"\n") if line[:5] == b"#env "]
    environment = {name: value for name, _, value in lines}
    with contextlib.suppress(ConfigError):
        load_config(file, environment).model_dump(mode="json")


def model(data: bytes) -> None:
    """A model file: `ModelError`, or a model that is the same when written and read again."""
    try:
        read = read_model(data, "fuzzed", limit=SMALL_MODEL)
    except ModelError:
        return
    written = canonical_bytes(read)
    assert canonical_bytes(read_model(written, "fuzzed")) == written


def umb(data: bytes) -> None:
    """A UMB file: `ModelError`, or a model that is the same when written and read again."""
    with contextlib.suppress(ModelError), warnings.catch_warnings(action="ignore", category=ModelWarning):
        again(read_umb(data, "fuzzed", limit=SMALL_MODEL))


def again(read: MDP) -> None:
    """As UMB and back, the model has the same rows."""
    back = read_umb(umb_files(read)[".umb"], "fuzzed")
    assert back.states == read.states
    assert back.probabilities.tobytes() == read.probabilities.tobytes()


def explicit(data: bytes) -> None:
    """PRISM's files in one text, each below a line with `@` and its suffix or heading: `ModelError` or a model."""
    before, *parts = data.split(b"@")
    files = {".tra": before}
    for part in parts:
        suffix, _, content = part.partition(b"\n")
        files[suffix.decode("latin-1")] = content
    for rewards in (None, "1"):
        with contextlib.suppress(ModelError):
            read_prism(files, "fuzzed", rewards, limit=SMALL_MODEL)
        with contextlib.suppress(ModelError):
            read_combined({".pexp": data.replace(b"@#", b"#")}, "fuzzed", rewards, limit=SMALL_MODEL)


def drn(data: bytes) -> None:
    """Storm's text: `ModelError` or a model."""
    with contextlib.suppress(ModelError):
        read_drn(data, "fuzzed", limit=SMALL_MODEL)


def pomdp(data: bytes) -> None:
    """Cassandra's text: `ModelError`, or a model that UMB keeps."""
    with contextlib.suppress(ModelError):
        read = read_pomdp(data, "fuzzed", limit=SMALL_MODEL)
        with warnings.catch_warnings(action="ignore", category=ModelWarning):
            back = read_umb(umb_files(read)[".umb"], "fuzzed")
        assert read.emissions is not None
        assert back.emissions is not None
        assert back.emissions.probabilities.tobytes() == read.emissions.probabilities.tobytes()


def manifest(data: bytes) -> None:
    """A policy's manifest: `PolicyError`, or a manifest whose file lies in its own folder."""
    with contextlib.suppress(PolicyError):
        read = read_manifest(data, "fuzzed")
        assert (folder() / read.file).resolve().is_relative_to(folder().resolve())


def recorded_inputs(data: bytes) -> None:
    """Recorded inputs of a world: `ModelError`, or inputs in their ranges, however far away the last ones are."""
    features = Feature("a"), Feature("b", low=0.0, high=9.0)
    with contextlib.suppress(ModelError):
        source = ResampledInputs(data, features, "fuzzed")
        for w in ((1.0, 1.0), (-1e308, 1e308)):
            drawn = source.resample(np.array(w), 3, np.array([0.1, 0.9]))
            assert all(-np.inf < a < np.inf and 0.0 <= b <= 9.0 for a, b in drawn.tolist())


def onnx_scan(data: bytes) -> None:
    """An ONNX file: `PolicyError`; or what another parser of protobuf finds in it keeps no data elsewhere."""
    try:
        refuse_unsafe(data, "fuzzed")
    except PolicyError:
        return
    try:
        read = onnx.ModelProto.FromString(data)
    except Exception:  # noqa: BLE001 - no ONNX file, by a class that depends on which protobuf is installed
        return
    _check_whole(read)


def evidence(data: bytes) -> None:
    """Evidence: `EvidenceError`; or a document of exactly these bytes, about which `rederive` has something to say."""
    try:
        read = read_evidence(data)
    except EvidenceError:
        return
    assert pack_evidence(read) == data
    world = loaded()
    assert all(isinstance(problem, str) for problem in rederive(read, world.model, world.tables, world.models))


def forged(data: bytes) -> None:
    """Evidence as `cfmon verify` and `explain` take it: a report, and a picture if nothing is wrong; or too large."""
    objects = _objects()
    try:
        report = examine(data, lambda sha256: objects.get(sha256, b""))
    except (ConfigError, LimitError):
        return
    assert all(isinstance(problem, str) for problem in report.problems)
    if not report.problems:
        assert report.proof is not None
        with contextlib.suppress(LimitError):
            proof = report.proof
            picture, _ = draw_alarm(proof.evidence, proof.model, proof.tables, proof.models)
            assert all(line.isprintable() for line in picture.replace("\t", " ").split("\n"))


@cache
def _objects() -> dict[str, bytes]:
    return loaded().objects()


def http(data: bytes) -> None:
    """A connection; the first byte says into how many pieces the rest falls: answers, no mistake of the server's."""
    count, content = 1 + (data[0] % 5 if data else 0), data[1:]
    size = max(1, -(-len(content) // count))
    written, errors = answer([content[at : at + size] for at in range(0, len(content), size)])
    assert not errors, errors[0]
    assert not written or written.startswith(b"HTTP/1.1 ")
    assert not re.search(rb"(?:^|\n)HTTP/1\.1 5(?!03)", written)


def pipeline(data: bytes) -> None:
    """What happens to a sidecar, a msgpack list of it: never an error; when all is silent, nobody is known any more.

    A map is a message (`agent`, `raw` its payload if not the map itself), a number seconds that pass, a truth the
    broker's coming and going, a text a topic of which messages were dropped.
    """
    try:
        happened = msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
        happened = [{"raw": data}]
    watching = _watching()
    for item in happened[:50] if isinstance(happened, list) else ():
        watching.happen(item)
    watching.silence()


class _Watching:
    """A pipeline that is used again for every input: all of an input's agents are forgotten at its end."""

    def __init__(self) -> None:
        self.pipeline = loaded().pipeline("fuzz")
        self.now = Instant(1000.0, 0.0)

    def happen(self, item: object) -> None:
        match item:
            case bool():
                self._step(Connected(self.now, up=item))
            case int() | float() if 0 <= item < 1e3:
                self.now = Instant(self.now.wall + item, self.now.ticks + item)
                self._step(Evaluate(self.now, latest_only=item > 10))
            case str():
                self._step(Lost(self.now, f"agents/{item}/steps", 2))
            case dict():
                agent, raw = item.pop("agent", "ada"), item.pop("raw", None)
                payload = raw if isinstance(raw, bytes) else bytes(msgpack.packb(item, unicode_errors="surrogatepass"))
                self._step(Message(self.now, f"agents/{agent}/steps", payload))
            case _:
                self._step(Heartbeat(self.now))

    def silence(self) -> None:
        self._step(Connected(self.now, up=True))
        self._step(Evaluate(self.now))
        self.now = Instant(self.now.wall + 1e5, self.now.ticks + 1e5)
        self._step(Evaluate(self.now))
        assert not loaded().monitor.agents()

    def _step(self, event: Event) -> None:
        for sent in self.pipeline.step(event).publications:
            assert sent.payload == b"" or json.loads(sent.payload)["v"] == 1


@cache
def _watching() -> _Watching:
    return _Watching()


def snapshot(data: bytes) -> None:
    """A sealed state, common or of an agent: `InputError` "bad_snapshot", or one that is sealed to the same state."""
    for kind in (CommonState, StoredAgent):
        try:
            state = unseal(data, kind)
        except InputError as error:
            _promised(error.reason == "bad_snapshot", f"bad_snapshot: {error}")
        else:
            assert seal(state) == seal(unseal(seal(state), kind))


def recording(data: bytes) -> None:
    """A recording: events until the end, or until `RecordingError`."""
    file = folder() / "fuzzed.recording"
    file.write_bytes(data)
    with contextlib.suppress(RecordingError), Recording(file) as events:
        for event in events:
            assert event.now.wall - event.now.wall == 0.0, "a time is a finite number"


def parquet(data: bytes) -> None:
    """A file of a recording as Parquet: events until the end, or until `RecordingError`."""
    recorded = parquet_folder("fuzzed")
    next(recorded.glob("date=*/bucket=all/*")).write_bytes(data)
    with contextlib.suppress(RecordingError):
        for event in ParquetRecording(recorded):
            assert event.now.wall - event.now.wall == 0.0, "a time is a finite number"


def table(data: bytes) -> None:
    """A table of steps; the first byte says of which kind: rows of batches, to a recording too, or `RecordingError`."""
    kind = TABLES[data[0] % len(TABLES) if data else 0]
    file = folder() / f"table.{kind}"
    file.write_bytes(data[1:])
    with contextlib.suppress(RecordingError):
        rows = McapRows(file, "/a") if kind == "mcap" else open_rows(file)
        names = rows.names()
        with contextlib.suppress(RecordingError):
            proposed(head_of([rows]), {})
        roles = guessed(names, {}, "fuzzed", rows.left_out)
        assert sum(len(batch) for batch in rows.batches(names)) >= 0
        for event in TableEvents(rows, roles, "agents/+/steps", "ada", 1.0):
            assert event.now.wall - event.now.wall == 0.0, "a time is a finite number"


def wire(data: bytes) -> None:
    """What a broker sends; the first byte says which version, and where it is cut. Messages do not depend on that."""
    version: Version = "5" if data[:1] < b"\x80" else "3.1.1"
    whole, cut = data[1:], 1 + ord(data[:1] or b"\0") % 0x80
    try:
        messages, packets = Codec(version).feed(whole)
    except MalformedPacketError:
        return
    reader = Codec(version)
    pieces = [reader.feed(whole[at : at + cut]) for at in range(0, len(whole), cut)]
    assert [message for heard, _ in pieces for message in heard] == messages
    assert all(0 <= number <= MAX_ID and len(payload) < len(whole) for _, payload, number in messages)
    for kind, content in packets:
        with contextlib.suppress(MalformedPacketError):
            said = reader.greeting(content).words if kind == CONNACK else reader.answer((kind, content)).words
            assert said is None or "\n" not in said, "one line of the log"


def path(data: bytes) -> None:
    """A file given to `cfmon check`; the first byte says which: a path (JSON, CSV), a policy's table, formulas."""
    kind, content = data[:1], data[1:]
    file = folder() / ("fuzzed.csv" if kind == b"c" else "fuzzed.json")
    file.write_bytes(content)
    world = loaded().mdp
    match kind:
        case b"p":
            with contextlib.suppress(PolicyError, PathError):
                read_policy(file, world)
        case b"f":
            with contextlib.suppress(PathError):
                assert read_formulas(file)
        case _:
            with contextlib.suppress(PathError):
                for state, action in read_path(file, world):
                    assert state is not None
                    assert 0 <= state < world.states
                    assert action is None or 0 <= action < world.actions


def _check_whole(message: Any) -> None:  # noqa: ANN401 - protobuf's messages have no common type to us
    """No tensor, however deep, says that its data lie in another file; no operator is of another domain."""
    if isinstance(message, onnx.TensorProto):
        assert not message.external_data
        assert message.data_location == onnx.TensorProto.DEFAULT
    if isinstance(message, onnx.NodeProto):
        assert message.domain in ("", "ai.onnx", "ai.onnx.ml")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in [value] if hasattr(value, "ListFields") else value:
                _check_whole(each)


def _promised(held: bool, what: str) -> None:  # noqa: FBT001 - the promise
    """Inside `except`, where a bare assertion would have the declared error as its context."""
    assert held, what
