"""The system-call filter of the shipped unit, without systemd: for any process, as systemd would install it.

`systemd-analyze` lists the calls in the unit's groups, libseccomp compiles the filter, and the process loads it between
fork and exec. Memory that can be written cannot be executed, where the kernel knows how (6.3). Other restrictions of
the unit (mounts, capabilities, cgroups) are not applied.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

__all__ = ["allowed", "compiled", "confined"]

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "cfmon.service"
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
MASKED_EQUAL, EQUAL = 7, 4
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}
MOST_FAMILIES = 64
"""Larger than any address family."""

NAMESPACE_CALLS = {"unshare", "setns"}
"""Calls refused by RestrictNamespaces besides clone, here with any flags; the monitor does not use them."""

NAMESPACES = 0x7E020000 | 0x02000000
"""Every CLONE_NEW flag of clone."""

LOAD = """
import ctypes, os, sys
program = open(sys.argv[1], "rb").read()
class PathProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(65, 1, 0, 0, 0)  # MemoryDenyWriteExecute
for call in ((38, 1, 0, 0, 0), (22, 2, ctypes.byref(PathProgram(len(program) // 8, program)), 0, 0)):
    if libc.prctl(*call) != 0:  # no new privileges; then the filter
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Program of the process to be confined: standard library only, single-threaded."""


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


def _settings(key: str) -> list[str]:
    return re.findall(rf"(?m)^{key}=(.*)$", UNIT.read_text())


@cache
def _group(name: str) -> frozenset[str]:
    """Return the calls of a group such as `@file-system`, or the call itself."""
    if not name.startswith("@"):
        return frozenset({name})
    listed = subprocess.check_output(["systemd-analyze", "syscall-filter", "--no-pager", name], text=True)
    words = [line.strip() for line in listed.splitlines()[1:]]
    return frozenset().union(*(_group(word) for word in words if word and not word.startswith("#")))


def _groups(words: str) -> Iterator[str]:
    for word in words.split():
        yield from _group(word)


def allowed() -> frozenset[str]:
    """Return the names of the calls that the unit allows; skip the test without systemd-analyze."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing (Debian: systemd)")
    first, *others = _settings("SystemCallFilter")
    assert not first.startswith("~"), "an allow list comes first"
    calls = set(_groups(first))
    for words in others:
        if words.startswith("~"):
            calls -= set(_groups(words[1:]))
        else:
            calls |= set(_groups(words))
    return frozenset(calls)


def compiled(*, without: Collection[str] = ()) -> bytes:
    """Return the filter in the kernel's format. Known calls that are not allowed fail with the unit's error number.

    `without`: further calls to refuse.
    """
    names = allowed() - {*without, *NAMESPACE_CALLS}
    name = ctypes.util.find_library("seccomp")
    if name is None:
        pytest.skip("libseccomp is missing (Debian: libseccomp2)")
    library = ctypes.CDLL(name)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint),
        ctypes.POINTER(_Comparison),
    ]
    (refusal,) = _settings("SystemCallErrorNumber")
    refuse = ERRNO | getattr(errno, refusal)
    context = library.seccomp_init(ctypes.c_uint32(ERRNO | errno.ENOSYS))

    def add(action: int, call: str, *comparisons: _Comparison) -> None:
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:  # otherwise a call of another architecture
            array = (_Comparison * max(len(comparisons), 1))(*comparisons)
            done = library.seccomp_rule_add_array(context, action, number, len(comparisons), array)
            assert done == 0, (call, os.strerror(-done))

    conditional = {"socket", "clone", "clone3"}
    for call in sorted(names - conditional):
        add(ALLOW, call)
    for call in sorted(_group("@known") - names):
        add(refuse, call)
    assert _settings("MemoryDenyWriteExecute") == ["yes"]
    (families,) = _settings("RestrictAddressFamilies")
    open_ = {FAMILIES[family] for family in families.split()}
    for family in range(MOST_FAMILIES):
        add(ALLOW if family in open_ else ERRNO | errno.EAFNOSUPPORT, "socket", _Comparison(0, EQUAL, family, 0))
    assert _settings("RestrictNamespaces") == ["yes"]
    add(ALLOW, "clone", _Comparison(0, MASKED_EQUAL, NAMESPACES, 0))  # clone3 hides its flags: systemd refuses it
    with tempfile.TemporaryFile() as file:
        library.seccomp_export_bpf(ctypes.c_void_p(context), file.fileno())
        library.seccomp_release(ctypes.c_void_p(context))
        file.seek(0)
        return file.read()


def confined(program: Path, command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` under the filter in the file `program`."""
    return [sys.executable, "-I", "-c", LOAD, str(program), *command]
