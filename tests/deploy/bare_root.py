"""A root directory with only the system's programs, to test `install.sh` and run what it installs.

It uses mount namespaces that end with their processes, and requires root. The network is the host's loopback.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

__all__ = ["BareRoot", "bare_root"]

PYTHON = Path(sys.base_prefix)
"""Prefix of the interpreter that virtual environments are made from."""

ENTER = """
set -eu
root=$1 read_only=$2; shift 2
mount --bind "$root" "$root"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$root/tmp"
for lent in $LENT; do
    mkdir -p "$root$lent"
    mount --bind "$lent" "$root$lent"
    mount -o remount,bind,ro "$root$lent"
done
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
if [ "$read_only" = yes ]; then
    mount --bind "$root/var/lib/cfmon" "$root/var/lib/cfmon"
    mount -o remount,bind,ro "$root"
fi
exec chroot "$root" "$@"
"""

UNPRIVILEGED = ["setpriv", "--reuid=cfmon", "--regid=cfmon", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]


@dataclass(frozen=True)
class BareRoot:
    """Root directory at `path`. `borrowed`: folders of the host that can be read there, besides its programs."""

    path: Path
    borrowed: Sequence[str] = ()

    def command(self, *arguments: str, read_only: bool) -> list[str]:
        """Return the command line that runs `arguments` in it, as root, or unprivileged and read-only."""
        enter = ["unshare", "--mount", "--propagation=private", "sh", "-c", ENTER, "sh", str(self.path)]
        return [*enter, "yes", *UNPRIVILEGED, *arguments] if read_only else [*enter, "no", *arguments]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a process in it: a search path and the mounted folders, nothing from the tests."""
        lent = " ".join(["/usr", *([] if PYTHON.is_relative_to("/usr") else [str(PYTHON)]), *self.borrowed])
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LENT": lent, "HOME": "/nowhere", **(more or {})}

    def run(
        self, *arguments: str, read_only: bool = False, more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it and wait for its end."""
        command = self.command(*arguments, read_only=read_only)
        return subprocess.run(command, env=self.environment(more), capture_output=True, text=True, check=False)

    def start(self, *arguments: str, more: Mapping[str, str], log: Path) -> subprocess.Popen[Any]:
        """Start an unprivileged process in it that can write only to the state folder."""
        with log.open("wb") as output:
            command = self.command(*arguments, read_only=True)
            return subprocess.Popen(command, env=self.environment(more), stdout=output, stderr=subprocess.STDOUT)


def bare_root(path: Path, borrowed: Sequence[str] = ()) -> BareRoot:
    """Make one at `path`; skips the test where that is impossible."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("a root of its own takes root, unshare and setpriv (Debian: util-linux)")
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    if probe.returncode != 0 or not Path("/bin").is_symlink():
        pytest.skip("mount namespaces are refused here, or /usr does not hold the whole system")
    own = ("dev", "etc", "in", "opt", "proc", "root", "tmp", "usr", "var/lib", "run")
    for folder in own:
        (path / folder).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (path / name).symlink_to(Path("/", name).readlink())
    path.chmod(0o755)  # or nobody but root gets past its /
    (path / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (path / "etc" / "group").write_text("root:x:0:\n")
    (path / "etc" / "login.defs").write_text("")
    for name in ("ld.so.cache", "nsswitch.conf"):
        shutil.copy(Path("/etc", name), path / "etc")
    return BareRoot(path, borrowed)
