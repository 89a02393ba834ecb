"""A second host on this machine: a network namespace for the broker, with a clean link and a bad link to ours."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

__all__ = ["BAD", "CLEAN", "Hurt", "far_host", "inside", "losing", "severed", "throttled"]

NAME = f"cfmon{os.getpid() % 100000}"
NETWORK = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 256}"
"""That of this process: tests run side by side."""

CLEAN, BAD = f"{NETWORK}.2", f"{NETWORK}.6"
"""Addresses of the far host on the two links."""


Hurt = Callable[[], int]
"""Number of packets lost or delayed so far."""


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def inside() -> list[str]:
    """Return the prefix of a command that runs it on the far host."""
    return ["ip", "netns", "exec", NAME]


@contextmanager
def far_host() -> Iterator[None]:
    """Create the far host until the block ends; skip the test without permission."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if missing := [tool for tool in ("ip", "nft", "tc") if shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin") is None]:
        pytest.skip(f"{' and '.join(missing)} missing (Debian: apt-get install iproute2 nftables)")
    if subprocess.run(["ip", "netns", "add", NAME], capture_output=True, check=False).returncode != 0:
        pytest.skip("network namespaces are not allowed here")
    try:
        run(*inside(), "ip", "link", "set", "lo", "up")
        for line, (here, there) in {"c": (f"{NETWORK}.1", CLEAN), "b": (f"{NETWORK}.5", BAD)}.items():
            ours, theirs = f"{NAME}{line}0", f"{NAME}{line}1"
            run("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", NAME)
            run("ip", "address", "add", f"{here}/30", "dev", ours)
            run("ip", "link", "set", ours, "up")
            run(*inside(), "ip", "address", "add", f"{there}/30", "dev", theirs)
            run(*inside(), "ip", "link", "set", theirs, "up")
        yield
    finally:
        for line in "cb":  # removing the namespace removes them too, but only later
            subprocess.run(["ip", "link", "delete", f"{NAME}{line}0"], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "delete", NAME], capture_output=True, check=False)


@contextmanager
def losing(percent: int) -> Iterator[Hurt]:
    """Drop this percentage of the packets on the bad link, in both directions."""
    with _dropping(f"numgen random mod 100 < {percent}") as hurt:
        yield hurt


@contextmanager
def severed() -> Iterator[Hurt]:
    """Drop all packets on the bad link, without closing connections."""
    with _dropping("") as hurt:
        yield hurt


@contextmanager
def _dropping(which: str) -> Iterator[Hurt]:
    drop = f"{which} counter drop"
    arriving = f'chain arriving {{ type filter hook input priority 0; iifname "{NAME}b1" {drop}; }}'
    leaving = f'chain leaving {{ type filter hook output priority 0; oifname "{NAME}b1" {drop}; }}'
    run(*inside(), "nft", f"table ip {NAME} {{\n{arriving}\n{leaving}\n}}")
    try:
        yield lambda: sum(map(int, re.findall(r"packets (\d+)", run(*inside(), "nft", "list", "table", "ip", NAME))))
    finally:
        run(*inside(), "nft", "delete", "table", "ip", NAME)


@contextmanager
def throttled(rate: str) -> Iterator[Hurt]:
    """Limit the rate of the bad link, such as `512kbit`."""
    line = ["dev", f"{NAME}b1"]
    run(*inside(), "tc", "qdisc", "replace", *line, "root", "tbf", "rate", rate, "burst", "16kb", "latency", "200ms")
    try:
        yield lambda: int(re.findall(r"overlimits (\d+)", run(*inside(), "tc", "-s", "qdisc", "show", *line))[0])
    finally:
        run(*inside(), "tc", "qdisc", "delete", *line, "root")
