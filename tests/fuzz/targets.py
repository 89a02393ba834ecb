"""What is fuzzed: a reader, true inputs to begin with, how they are changed, and the reader's part of all inputs."""

from __future__ import annotations

import hashlib
import io
import json
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import msgpack
import pyarrow as pa
from mcap.writer import Writer
from pyarrow.parquet import write_table

from monitor.alarm.message import Identity, alert_id
from monitor.authoring.formats.prism_write import prism_files
from monitor.authoring.formats.umb_write import umb_files
from monitor.model.formats import FORMATS
from monitor.sidecar.mqtt.codec import Codec
from monitor.types import FormulaSpec
from tests.fuzz import mutate, readers
from tests.fuzz.world import evidence, folder, loaded, parquet, recording, step, steps
from tests.model.verification_models import carrying, random_model

__all__ = ["FOUND", "TARGETS", "Target", "found"]

FOUND: Final = Path(__file__).parent / "found"
"""Inputs that once broke a reader, under its name."""


@dataclass(frozen=True)
class Target:
    """`share`: of ten million inputs. `longest`: bytes of an input the fuzzer makes. `slow`: seconds one may take."""

    name: str
    read: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    mutate: mutate.Mutation
    share: int
    longest: int = 2048
    slow: float = 1.0


@cache
def found(name: str) -> tuple[bytes, ...]:
    """What once broke the reader of this name."""
    return tuple(file.read_bytes() for file in sorted((FOUND / name).glob("*")))


# ---- true inputs ----


def _npz() -> list[bytes]:
    """A small model, and one with every optional part."""
    form = FORMATS[0]
    return [*_project("model.npz"), form.write(carrying(random_model(0), form, kept=True))[form.suffix]]


def _umb() -> list[bytes]:
    """A UMB file, and the same without compression."""
    content = umb_files(loaded().mdp)[".umb"]
    return [content, zlib.decompress(content, 31)]


def _explicit() -> list[bytes]:
    """PRISM's files in one text, each below its suffix, or below its heading."""
    values = b"".join(b"%d:(%d,true)\n" % (s, s) for s in range(6))
    more = {".srew": b"6 1\n0 1.5\n", ".sta": b"(x,b)\n" + values}
    files = prism_files(replace(loaded().mdp, valuations=())) | more
    headings = {
        ".tra": b"# Transitions (MDP)",
        ".lab": b"# Labels",
        ".sta": b"# States",
        ".srew": b'# Reward structure "a"\n# State rewards',
        ".trew": b'# Reward structure "a"\n# Transition rewards',
    }
    below = {suffix: suffix.encode() for suffix in files}
    hidden = {**files, ".tra": HIDDEN_TRA, ".obs": b"(on)\n0:(false)\n1:(true)\n"}
    return [
        b"".join(b"@" + of.get(suffix, suffix.encode()) + b"\n" + held[suffix] for suffix in held)
        for held, of in ((files, below), (files, headings), (hidden, below))
    ]


HIDDEN_TRA: Final = b"".join(
    b"%s\n" % row
    for row in (b"6 6 6 2", b"- - 0 - 0", *(b"%d 0 %d 1 %d go" % (s, (s + 1) % 6, (s + 1) % 2) for s in range(6)))
)
DRN: Final = b"""\
@type: MDP
@parameters

@reward_models
steps
@nr_states
2
@nr_choices
3
@model
state 0 [0.5] init
\taction go [1]
\t\t0 : 0.5
\t\t1 : 0.5
\taction __NOLABEL__ [0]
\t\t1 : 1
state 1 [0] goal
\taction go [0]
\t\t1 : 1
"""
HIDDEN_DRN: Final = DRN.replace(b"MDP", b"POMDP").replace(b"state 0", b"state 0 {1}").replace(b"te 1", b"te 1 {0}")
POMDP: Final = b"""\
discount: 0.95
values: reward
states: open shut
actions: look push
observations: 2
start: 0.25 0.75
T: look identity
T: push : open : open 1.0
T: push : 1
0.5 0.5
O: look
0.75 0.25
0.25 0.75
O: push uniform
R: look : * : * : * -1
R: push : shut : open : 0 4
"""
POMDP_WORDS: Final = (
    "T:",
    "O:",
    "R:",
    "start:",
    "start include:",
    "start exclude:",
    "uniform",
    "identity",
    "reset",
    "states:",
    "push",
    "*",
    ":",
    "-1",
    "1e400",
    "9" * 30,
    "#",
    "\n",
)
INPUTS: Final = b"episode,a,b\n1,0.5,2\n1,-1.5,3\n1,1e3,0\n2,0.25,9\n2,0.5,8\n"
INPUTS_WORDS: Final = ("episode", "a", "b", ",", "\n", "\r\n", "nan", "inf", "1e400", "-1e308", "1e-320", "#", '"')
DRN_WORDS: Final = (
    "@model",
    "@type",
    "state",
    "action",
    ":",
    "[",
    "]",
    "{",
    "!",
    "1/3",
    "-1",
    "1e400",
    "9" * 30,
    "//",
    "\n",
)
EXPLICIT_WORDS: Final = (
    "@.tra",
    "@.lab",
    "@.sta",
    "@1.srew",
    "@2.trew",
    "@# Labels",
    "# Transitions (CTMC)",
    '# Reward structure "b"',
    "# State rewards",
    "\n",
    "0",
    "1/0",
    "-1",
    "1e400",
    "9" * 30,
    '0="a"',
    "(",
    ")",
    ":",
    "#END",
)


def _project(*names: str) -> list[bytes]:
    loaded()
    return [(folder() / "project" / name).read_bytes() for name in names]


def _messages() -> list[bytes]:
    kinds = [
        step(0, 1),
        step(3, "one", "careful", reward=-1.5),
        step(4, [1, False, "1"], None, terminated=True, policy="ab" * 32),
        step(2**40, [1.5, 0.25], 1, truncated=True),
    ]
    return [bytes(msgpack.packb(kind)) for kind in kinds] + [json.dumps(kind).encode() for kind in kinds]


def _happenings() -> list[bytes]:
    alarm = [part for seq, state in enumerate((0, 1, 2, 3)) for part in (step(seq, state), 0.5)]
    gap = [step(0, 0), step(5, 1), 1, step(5, 2), {"agent": "eve", **step(7, 3)}, "ada", 2.0]
    end = [step(0, 0), step(1, 4, terminated=True), step(0, 0, episode="f"), False, 6, True, None]
    return [bytes(msgpack.packb(events)) for events in (alarm, gap, end, [{"raw": b"{}"}, {"agent": "a/b"}])]


FORMULAS: Final = (
    'regret(careful@2, P>=0.8 [ G<=3 !"lost" ])',
    'careful@1.P=? [ F<=3 "home" ]',
    'delta(careful,nominal)@2.P>=0.1 [ ("home" | X "lost") U[1,4] "home" => true ]',
    "do(rash)[2]@-3.R<=2.5e0 [ C<=20 ] & !@1.P<0.5 [ F=3 P>0.1 [ G[2,3] false ] ]",
    'model:other.P>=0.5 [ "home" W<=3 "lost" <=> "lost" R<=2 "home" ] // why\n',
)
WORDS: Final = (
    *("P", "R", "C", "F", "G", "X", "U", "W", "regret", "nominal", "do", "model", "delta", "true", "false", "careful"),
    *("<=", ">=", "=?", "<=>", "=>", "[", "]", "(", ")", "!", "&", "|", "@", "@-", ":", ".", ",", '"', '"lost"', "//"),
    *("<=3", "[2,5]", "=4", ">=0.5", "1e400", "1000001", "9" * 30, "-1", "P=? [", "P>=0.5 [", "F<=3", "regret(", "\n"),
)
YAML_WORDS: Final = (
    *("&a ", "*a", "!!int ", "!!bool x", '!!float ""', "!!set", "!x", "<<", "? ", "- ", ": ", "|\n", ">\n", "---\n"),
    *(
        "...",
        "\t",
        "  ",
        "\n",
        "'",
        '"',
        "{",
        "}",
        "[",
        "]",
        "#",
        "%YAML 1.1\n",
        "=",
        "~",
        "null",
        "yes",
        "0x",
        "0b",
        "1_",
    ),
    *(
        "2001-01-01",
        "1:30",
        ".nan",
        ".inf",
        "1e400",
        "\\x",
        "\ufeff",
        "\x85",
        "formulas",
        "500ms",
        "1h",
        "mqtts://",
        ":",
    ),
)
TABLE_WORDS: Final = (
    *("\n", ",", ";", '"', "\0", "nan", "inf", "1e400", "9" * 30, "-1", "\\ud800", "[", "]", "{", "}", "null", "true"),
    *(
        "\ufeff",
        "2026-05-04T07:00:00Z",
        "2026-05-04",
        "[[1]]",
        '{"a":1}',
        '""',
        "0x1",
        "1_0",
        "\r",
        "\u00a0",
        "1,5",
        "agent",
    ),
)
TOPIC_WORDS: Final = ("agents/", "/steps", "+", "#", "/", "\0", " ", "é")


REQUESTS: Final = (
    b"\x00GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x01GET /api/agents/ada?search=a HTTP/1.1\r\nHost: 127.0.0.1:9108\r\nAccept: */*\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    b"\x02POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"\x03GET /evidence/ab.sig HTTP/1.1\r\nHost: [::1]:1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    b"\x04HEAD /picture/ab.svg HTTP/1.1\r\nHost: monitor.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
)
HTTP_WORDS: Final = (
    *("GET", "HEAD", "POST", "CONNECT", "OPTIONS", " ", "/", "*", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "\r\n", "\n"),
    *("\r\n\r\n", "Host: localhost\r\n", "Host: a@b\r\n", "Connection: close\r\n", "Connection: keep-alive\r\n"),
    *("Transfer-Encoding: chunked\r\n", "Content-Length: 5\r\n", "Content-Length: -1\r\n", "0\r\n\r\n", "zz\r\n"),
    *("ffffffffffffffffffff\r\n", "Expect: 100-continue\r\n", "Upgrade: h2c\r\n", "Authorization: Bearer \xff\r\n"),
    *("/healthz", "/readyz", "/metrics", "/api/overview?search=%", "/evidence/..%2f", "%00", "\x00", "\t", "a" * 3000),
)


def _configs() -> list[bytes]:
    whole = """\
mqtt: {url: "mqtt://127.0.0.1:1", client_id: me, keepalive: 5s, steps: a/+/b}
model: model.npz
state_encoder: name
policies: {nominal: rash.yaml}
formulas: [{name: x, formula: 'P=? [ F<=3 "home" ]', every: 500ms, engine: sampled, alarm: {for: 2, keep: 3}}]
stream: {stale_after: 5s, forget_after: 1h, max_lag: 2s}
http: {listen: "[::1]:9108"}
limits: {message_bytes: 1000, agents: 3, deadline: 50ms}
logging: {format: json}
#env CFMON_MQTT__URL=mqtt://localhost:1
#env CFMON_FORMULAS=[]
"""
    return [*_project("config.yaml"), whole.encode()]


def _wire() -> list[bytes]:
    """What brokers of both versions send: a greeting with properties, answers, steps, a farewell with its reason."""
    five, old = Codec("5"), Codec("3.1.1")
    step = bytes(msgpack.packb({"v": 1, "seq": 0, "state": 1}))
    sent = [
        codec.publish("agents/ada/steps", step * n, number=n, retain=False) for codec in (five, old) for n in (0, 9)
    ]
    return [
        b"\x03\x20\x0e\x01\x00\x0b\x21\x00\x14\x13\x00\x0f\x1f\x00\x02ok"
        + sent[0]
        + b"\x90\x04\x00\x01\x00\x01"
        + sent[1],
        b"\x70\x40\x04\x00\x03\x87\x00\xd0\x00\xe0\x07\x8b\x05\x1f\x00\x02by" + sent[1],
        b"\x85\x20\x02\x00\x05\x90\x03\x00\x01\x80\x40\x02\x00\x03" + sent[2] + sent[3],
    ]


def _paths() -> list[bytes]:
    pairs = '[[0, "rash"], ["one", 1], {"state": [2, true, "2"], "action": 0}, [3]]'
    lines = '{"state": 0, "action": 1}\n\n[1, 0]'
    return [
        *(f"j{text}".encode() for text in (pairs, lines, "[1, null]")),
        *(b"cstate,action\n0,1\none,rash\n\n2,\n", b'c"zero",0\r\n1,"careful"'),
        *(b"p[0, 1, 0, 1, 0, 1]", b"p" + json.dumps([[0.5, 0.5]] * 6).encode()),
        b"fP=? [ F<=3 true ]\n  & true\n// no\n\nP>=0.5 [ true ]",
    ]


def _tables() -> list[bytes]:
    """A table of steps in each form, after the byte that names it."""
    rows = [
        {"run": n // 4, "step": n % 4, "state": n % 3, "action": n % 2, "name": "ab"[n % 2], "x": n / 2, "done": n == 7}
        for n in range(8)
    ]
    found = pa.Table.from_pylist([row | {"pose": [row["x"], 1.0], "at": {"y": row["state"]}} for row in rows])
    forms = [io.BytesIO() for _ in readers.TABLES]
    forms[0].write("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]).encode())
    forms[1].write("\n".join(json.dumps(row | {"pose": [1, 2]}) for row in rows).encode())
    write_table(found, forms[2], compression="zstd")
    with pa.ipc.new_file(forms[3], found.schema) as file:
        file.write_table(found)
    writer = Writer(forms[4])
    writer.start()
    channel = writer.register_channel("/a", "json", 0)
    for n, row in enumerate(rows):
        writer.add_message(channel, log_time=n, data=json.dumps(row).encode(), publish_time=n)
    writer.finish()  # type: ignore[no-untyped-call]
    return [bytes([kind]) + form.getvalue() for kind, form in enumerate(forms)]


def _snapshots() -> list[bytes]:
    pipeline = loaded().pipeline("fuzz")
    for event in steps():
        pipeline.step(event)
    kept = pipeline.snapshot(everything=True)
    return [kept.common, *(state for state in kept.agents.values() if state is not None)]


# ---- changes that know the form ----


def _text_of(words: Sequence[str]) -> mutate.Mutation:
    def change(rng: random.Random, data: bytes) -> bytes:
        return mutate.text(rng, data, words)

    return change


def _table(rng: random.Random, data: bytes) -> bytes:
    kind, content = data[:1], data[1:]
    return kind + (mutate.text(rng, content, TABLE_WORDS) if kind < b"\x02" else mutate.raw(rng, content))


def _message(rng: random.Random, data: bytes) -> bytes:
    return (mutate.json_text if data[:1] < b"\x80" else mutate.msgpack_bytes)(rng, data)


def _yaml(rng: random.Random, data: bytes) -> bytes:
    return mutate.text(rng, data, YAML_WORDS) if data[:1] != b"{" or rng.random() < 0.3 else mutate.json_text(rng, data)


def _path(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.05:
        return rng.choice((b"j", b"c", b"p", b"f")) + data[1:]
    inside = mutate.json_text if data[:1] in (b"j", b"p") and rng.random() < 0.7 else _text_of(("\0", '"', ",", "\r"))
    return data[:1] + inside(rng, data[1:])


def _proved(rng: random.Random, data: bytes) -> bytes:
    """Evidence changed as a tree, and given the digest that belongs to it: so the digest does not stop it."""
    try:
        document = msgpack.unpackb(mutate.msgpack_bytes(rng, data), unicode_errors="surrogatepass")
        document.pop("digest")
        digest = hashlib.sha256(_packed(document)).hexdigest()
        return _packed({**document, "digest": digest})
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, msgpack.UnpackException):
        return mutate.raw(rng, data)


def _forged(rng: random.Random, data: bytes) -> bytes:
    """Evidence with one of its texts or one place changed, and both ids that belong to it: so that it is derived."""
    try:
        document = msgpack.unpackb(data, unicode_errors="surrogatepass")
        if rng.random() < 0.5:
            document["text"] = mutate.text(rng, rng.choice(FORMULAS).encode(), WORDS).decode("utf-8", "replace")
        else:
            document = msgpack.unpackb(mutate.msgpack_bytes(rng, data), unicode_errors="surrogatepass")
        document.pop("digest")
        policies = {name: policy["sha256"] for name, policy in document["policies"].items()}
        world = Identity(
            document["model"], document["model_sha256"], policies, document["versions"], document["models"]
        )
        spec = FormulaSpec(document["formula"], document["text"], causal_model=document["causal_model"])
        document["alert"] = alert_id(document["agent"], document["episode"], spec, world, document["first_seq"])
        return _packed({**document, "digest": hashlib.sha256(_packed(document)).hexdigest()})
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, msgpack.UnpackException):
        return mutate.raw(rng, data)


def _packed(document: object) -> bytes:
    return bytes(msgpack.packb(_ordered(document), unicode_errors="surrogatepass"))


def _ordered(value: object) -> object:
    match value:
        case dict():
            return {key: _ordered(value[key]) for key in sorted(value)}
        case list():
            return [_ordered(item) for item in value]
        case _:
            return value


def _sealed(rng: random.Random, data: bytes) -> bytes:
    """A snapshot changed behind its seal, and sealed again."""
    body = mutate.msgpack_bytes(rng, data[21:])
    checksum = hashlib.blake2b(body, digest_size=16).digest()
    return data[:5] + checksum + body if rng.random() < 0.8 else mutate.raw(rng, data)


def _recorded(rng: random.Random, data: bytes) -> bytes:
    """One value of a recording changed, left out, or exchanged with another."""
    values = list(_values(data))
    if not values:
        return mutate.raw(rng, data)
    at = rng.randrange(len(values))
    match rng.randrange(5):
        case 0:
            del values[at]
        case 1:
            values[at] = rng.choice(values)
        case _:
            values[at] = mutate.msgpack_bytes(rng, values[at])
    return b"".join(values)


def _values(data: bytes) -> Iterator[bytes]:
    unpacker = msgpack.Unpacker(io.BytesIO(data), strict_map_key=False, max_buffer_size=1 << 20)
    at = 0
    try:
        for _ in unpacker:
            yield data[at : unpacker.tell()]
            at = unpacker.tell()
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
        yield data[at:]


TARGETS: Final = {
    target.name: target
    for target in (
        Target("decoder", readers.decoder, _messages, _message, 5_050_000),
        Target("topic", readers.topic, lambda: [b"agents/ada/steps"], _text_of(TOPIC_WORDS), 2_300_000, 200),
        Target("wire", readers.wire, _wire, mutate.raw, 200_000),
        Target("pipeline", readers.pipeline, _happenings, mutate.msgpack_bytes, 100_000),
        Target("formula", readers.formula, lambda: [f.encode() for f in FORMULAS], _text_of(WORDS), 250_000, 600),
        Target("config", readers.config, _configs, _yaml, 60_000),
        Target("manifest", readers.manifest, lambda: _project("rash.yaml"), _yaml, 140_000),
        Target("recorded inputs", readers.recorded_inputs, lambda: [INPUTS], _text_of(INPUTS_WORDS), 50_000),
        Target("onnx", readers.onnx_scan, lambda: _project("rash.onnx"), mutate.protobuf_bytes, 400_000),
        Target("model", readers.model, _npz, mutate.npz_bytes, 100_000, 8192),
        Target("umb", readers.umb, _umb, mutate.raw, 50_000, 20_000),
        Target("explicit", readers.explicit, _explicit, _text_of(EXPLICIT_WORDS), 50_000),
        Target("drn", readers.drn, lambda: [DRN, HIDDEN_DRN], _text_of(DRN_WORDS), 30_000),
        Target("pomdp", readers.pomdp, lambda: [POMDP], _text_of(POMDP_WORDS), 20_000, 2000),
        Target("evidence", readers.evidence, lambda: [evidence()], _proved, 100_000, 4096),
        Target("forged", readers.forged, lambda: [evidence()], _forged, 50_000, 4096, 10.0),
        Target("http", readers.http, lambda: list(REQUESTS), _text_of(HTTP_WORDS), 200_000, 4096),
        Target("snapshot", readers.snapshot, _snapshots, _sealed, 600_000),
        Target("recording", readers.recording, lambda: [recording()], _recorded, 140_000),
        Target("parquet", readers.parquet, lambda: [parquet()], mutate.raw, 10_000, 20_000),
        Target("path", readers.path, _paths, _path, 90_000),
        Target("table", readers.table, _tables, _table, 10_000, 20_000),
    )
}
assert sum(target.share for target in TARGETS.values()) == 10_000_000
