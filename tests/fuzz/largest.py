"""The largest inputs that the readers take, and some that ask for more than they are."""

from __future__ import annotations

from typing import Final

__all__ = ["LARGEST"]

MIB: Final = 1 << 20
LARGEST: Final[list[tuple[str, bytes]]] = [
    ("decoder", b"[" * 65536),
    ("decoder", b'{"a":' * 13000),
    ("decoder", b"\x91" * 65536),
    ("decoder", b"\xdf\xff\xff\xff\xff"),
    ("decoder", b'{"v":1,"episode":"e","seq":0,"state":' + b"1" * 60000 + b"}"),
    ("decoder", b'{"v":1,"episode":"e","seq":0,"state":[' + b"1.5," * 15000 + b"1]}"),
    ("formula", b"(" * 10000),
    ("formula", b"!" * 9990 + b"true"),
    ("formula", b"true" + b" <=> true" * 1000),
    ("formula", b"\n" * 9999 + b"x"),
    ("formula", b"P>=0." + b"9" * 9000 + b" [ true ]"),
    ("config", b"a: [" + b"1," * 500_000 + b"1]"),
    ("config", b"".join(b"k%d: 1\n" % n for n in range(80_000))),
    ("config", b"a: " + b"1:" * 100_000 + b"1"),
    ("config", b"a: 1" + b":59" * 300_000),
    ("config", b"a: " + b"9" * 900_000),
    ("config", b"a: |\n" + b" x\n" * 300_000),
    ("config", b"[" * MIB),
    ("recorded inputs", b"a,b\n" + b"1.5,2.5\n" * 100_000),
    ("recorded inputs", b"episode,a,b\n" + b"".join(b"%d,%d,1\n" % (n // 2, n) for n in range(100_000))),
    ("recorded inputs", b"\r" * (1 << 25)),
    (
        "manifest",
        b"k0: &k0 {x: 1}\n"
        + b"".join(b"k%d: &k%d {<<: [%s]}\n" % (n, n, b"*k%d," % (n - 1) * 9) for n in range(1, 20)),
    ),
    ("manifest", b"[" * 65000),
    ("evidence", b"\xdd\x00\x01\x00\x00" * 1000),
    ("recording", b"\xdb\x7f\xff\xff\xff"),
    ("path", b"j" + b"[" * 100_000),
    ("path", b"j[[" + b"[" * 900 + b"]" * 900 + b",1]]"),
    ("path", b"j" + b"1" * 5000),
    ("path", b'c"' + b"x" * 200_000),
    ("path", b"f" + b"x\n" * 100_000),
]
"""(reader, input): none may take longer than a second, which `python -m tests.fuzz.drive` looks at."""
