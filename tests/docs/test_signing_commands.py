"""The commands of docs/security.md that make keys and check signatures are run, and agree with the monitor."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from monitor.errors import ConfigError
from monitor.evidence.signing import read_signer, read_verifier
from tests.servers import PATIENCE

PAGE: Final = Path(__file__).parents[2] / "docs/security.md"
LINES: Final = re.findall(r"^openssl (?!rand)[^\n]+$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.fixture(autouse=True)
def _openssl() -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing (Debian: apt-get install openssl)")


def run(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_what_openssl_makes_and_checks_is_what_the_monitor_signs_with(tmp_path: Path) -> None:
    make, publish, check, fingerprint = LINES
    for line in (make, publish):
        done = run(tmp_path, line)
        assert done.returncode == 0, done.stderr
    signer, verifier = read_signer(tmp_path / "evidence.key.pem"), read_verifier(tmp_path / "evidence.pub.pem")
    evidence = b"evidence" * 1000
    (tmp_path / "ID").write_bytes(evidence)
    (tmp_path / "ID.sig").write_bytes(signer.sign(evidence))
    assert verifier.accepts(signer.sign(evidence), evidence)
    done = run(tmp_path, check)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(tmp_path, fingerprint).stdout.split()[0] == verifier.fingerprint
    (tmp_path / "ID").write_bytes(evidence[:-1])
    assert run(tmp_path, check).returncode != 0


def test_a_key_that_openssl_encrypts_or_makes_of_another_kind_is_refused(tmp_path: Path) -> None:
    for line, says in (
        ("openssl genpkey -algorithm ed25519 -aes256 -pass pass:secret -out evidence.key.pem", "is encrypted"),
        ("openssl genpkey -algorithm ed448 -out evidence.key.pem", "is not an Ed25519 key"),
    ):
        assert run(tmp_path, line).returncode == 0
        with pytest.raises(ConfigError, match=says):
            read_signer(tmp_path / "evidence.key.pem")
