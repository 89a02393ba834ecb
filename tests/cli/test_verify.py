"""`cfmon verify` and whose evidence it is: the id in the name or from the alert, and the signature."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from monitor.alarm.message import Identity, alert_id
from monitor.evidence import verification
from monitor.evidence.document import read_evidence
from monitor.evidence.effort import MAX_WORK, work
from monitor.evidence.signing import read_signer, read_verifier
from monitor.types import FormulaSpec
from tests.cli.forging import with_digest
from tests.sidecar.alarms import alarm
from tests.sidecar.keys import make_keys
from tests.tiers import first

Run = Callable[..., tuple[int, str, str]]
TRUE = alarm("regret with bounds")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The evidence as a monitor keeps it, with the objects it names."""
    return TRUE.keep(tmp_path / "var")


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return make_keys(tmp_path)


def signed(file: Path, private: Path) -> Path:
    """The evidence with a signature beside it."""
    file.with_name(f"{file.name}.sig").write_bytes(read_signer(private).sign(file.read_bytes()))
    return file


def forged(change: Callable[[dict[str, Any]], None]) -> tuple[str, bytes]:
    """The evidence altered, with a digest that fits: its id and its bytes."""
    document: dict[str, Any] = msgpack.unpackb(TRUE.content)
    change(document)
    return with_digest(document)


def later(document: dict[str, Any]) -> None:
    """An alteration that no number tells of."""
    document["time"] += 3600.0


def test_true_evidence_is_verified_by_its_name(file: Path, cfmon: Run) -> None:
    code, out, _ = cfmon("verify", str(file))
    assert code == 0
    assert f"  id       {TRUE.id}  as the file's name says" in out
    assert "not signed: this proves the numbers, not the origin" in out
    assert "recomputed by: referee (a second program" in out
    assert out.splitlines()[-1].startswith("verified: ")


def test_a_file_that_was_altered_with_its_digest_is_found_by_its_name(file: Path, cfmon: Run) -> None:
    other, content = forged(later)
    file.write_bytes(content)
    code, out, _ = cfmon("verify", str(file))
    assert code == 1
    assert f"NOT VERIFIED: id: the file's name says {TRUE.id}, the document has {other}: renamed or replaced" in out
    assert "NOT as the file's name says" in out


@pytest.mark.parametrize("suffix", first(2, [".evidence", " (1).evidence", ".msgpack", "-copy", ".evidence.1"]))
def test_a_copy_is_known_by_the_id_its_name_begins_with(file: Path, cfmon: Run, suffix: str) -> None:
    copy = file.rename(file.with_name(f"{TRUE.id}{suffix}"))
    assert cfmon("verify", str(copy))[0] == 0
    copy.write_bytes(forged(later)[1])
    assert cfmon("verify", str(copy))[0] == 1


@pytest.mark.parametrize("name", first(2, [f"x{TRUE.id}", f"{TRUE.id}0", TRUE.id[:31], "alarm.evidence"]))
def test_a_name_without_an_id_is_said_to_compare_nothing(file: Path, cfmon: Run, name: str) -> None:
    copy = file.rename(file.with_name(name))
    code, out, _ = cfmon("verify", str(copy))
    assert code == 0
    assert f"  id       {TRUE.id}  NOT COMPARED: the file's name has no id" in out
    assert json.loads(cfmon("verify", str(copy), "--json")[1])["id_compared"] is False


def test_the_id_of_the_alert_is_compared_whatever_the_name(file: Path, cfmon: Run) -> None:
    copy = file.rename(file.with_name("alarm.evidence"))
    code, out, _ = cfmon("verify", str(copy), "--id", TRUE.id)
    assert (code, f"{TRUE.id}  as --id says" in out) == (0, True)
    other, content = forged(later)
    renamed = file.with_name(other)
    renamed.write_bytes(content)
    assert cfmon("verify", str(renamed))[0] == 0  # an unsigned file under a name that fits proves no more
    code, out, _ = cfmon("verify", str(renamed), "--id", TRUE.id)
    assert (code, f"id: --id says {TRUE.id}, the document has {other}" in out) == (1, True)
    code, out, err = cfmon("verify", str(file), "--id", "watch")
    assert (code, out) == (2, "")
    assert "--id: give the 32 hexadecimal digits" in err


def test_standard_input_has_no_name(file: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = ("--objects", str(file.parent.parent / "objects"))

    def piped(*options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
        return cfmon("verify", "-", *objects, *options)

    assert (piped()[0], "NOT COMPARED" in piped()[1]) == (0, True)
    assert (piped("--id", TRUE.id)[0], piped("--id", "0" * 32)[0]) == (0, 1)


def test_with_a_key_only_what_that_key_signed_is_verified(
    file: Path, keys: tuple[Path, Path], tmp_path: Path, cfmon: Run
) -> None:
    private, public = keys
    fingerprint = read_verifier(public).fingerprint
    code, out, _ = cfmon("verify", str(file), "--key", str(public))
    assert code == 1
    assert f"NOT VERIFIED: signature: none at {file}.sig" in out
    signed(file, private)
    code, out, _ = cfmon("verify", str(file), "--key", str(public))
    assert (code, f"signed by {fingerprint}" in out) == (0, True)
    stranger = make_keys(tmp_path, "stranger")[1]
    code, out, _ = cfmon("verify", str(file), "--key", str(stranger))
    assert code == 1
    assert f"not made over this file by the key {read_verifier(stranger).fingerprint}" in out
    other, content = forged(later)
    file.with_name(other).write_bytes(content)
    file.with_name(f"{other}.sig").write_bytes(file.with_name(f"{file.name}.sig").read_bytes())
    code, out, _ = cfmon("verify", str(file.with_name(other)), "--key", str(public))
    assert (code, "signature: not made over this file" in out) == (1, True)


def test_a_signature_is_found_beside_a_download_or_where_it_is_said_to_be(
    file: Path, keys: tuple[Path, Path], tmp_path: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = keys
    download = signed(file, private).rename(file.with_name(f"{TRUE.id}.evidence"))
    assert cfmon("verify", str(download), "--key", str(public))[0] == 0
    signature = file.with_name(f"{file.name}.sig").rename(tmp_path / "elsewhere")
    assert cfmon("verify", str(download), "--key", str(public))[0] == 1
    assert cfmon("verify", str(download), "--key", str(public), "--signature", str(signature))[0] == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(download.read_bytes())))
    objects = ("--objects", str(file.parent.parent / "objects"))
    assert cfmon("verify", "-", *objects, "--key", str(public), "--signature", str(signature))[0] == 0
    code, out, err = cfmon("verify", "-", *objects, "--key", str(public))
    assert (code, out, "--signature" in err) == (2, "", True)
    code, out, err = cfmon("verify", str(download), "--signature", str(signature))
    assert (code, out, "--signature needs --key" in err) == (2, "", True)
    code, out, err = cfmon("verify", str(download), "--key", str(public), "--signature", str(tmp_path / "none"))
    assert (code, out, "cannot read the signature" in err) == (2, "", True)


@pytest.mark.parametrize("content", first(1, [b"x" * 63, b"", b"x" * 65]))
def test_what_is_no_signature_is_said_to_be_none(
    file: Path, keys: tuple[Path, Path], cfmon: Run, content: bytes
) -> None:
    file.with_name(f"{file.name}.sig").write_bytes(content)
    code, out, _ = cfmon("verify", str(file), "--key", str(keys[1]))
    assert (code, "is not an Ed25519 signature, which has 64 bytes" in out) == (1, True)
    assert "signature not checked: give --key" in cfmon("verify", str(file))[1]


def test_a_signature_over_what_is_no_evidence_does_not_make_it_any(
    file: Path, keys: tuple[Path, Path], cfmon: Run
) -> None:
    file.write_bytes(b"no evidence")
    code, out, _ = cfmon("verify", str(signed(file, keys[0])), "--key", str(keys[1]))
    assert (code, "signed by" in out) == (1, True)
    assert "NOT VERIFIED: evidence: not one msgpack document" in out


def test_the_json_says_who_signed_who_derived_and_whether_the_id_was_compared(
    file: Path, keys: tuple[Path, Path], cfmon: Run
) -> None:
    fingerprint = read_verifier(keys[1]).fingerprint
    known = {"verified": True, "evidence": TRUE.id, "disagreements": [], "derived_by": "referee", "id_compared": True}
    told = json.loads(cfmon("verify", str(signed(file, keys[0])), "--key", str(keys[1]), "--json")[1])
    assert {key: told[key] for key in known} == known
    assert told["signature"] == {"state": "valid", "key": fingerprint}
    assert told.keys() == {*known, "alert", "formula", "not_derived_by", "numbers", "signature"}
    told = json.loads(cfmon("verify", str(file), "--json")[1])
    assert told["signature"] == {"state": "unchecked", "key": None}


def test_a_manifest_of_another_file_is_found_and_no_number_is_said_to_agree(tmp_path: Path, cfmon: Run) -> None:
    def change(document: dict[str, Any]) -> None:
        document["policies"]["careful"]["manifest"]["sha256"] = "0" * 64

    name, content = forged(change)
    file = TRUE.keep(tmp_path / "var").with_name(name)
    file.write_bytes(content)
    code, out, _ = cfmon("verify", str(file))
    assert code == 1
    assert f"NOT VERIFIED: policies.careful.manifest.sha256: {'0' * 64} is recorded, the policy is " in out
    assert out.count("NOT VERIFIED") == 1


def test_a_manifest_has_one_form(tmp_path: Path, cfmon: Run) -> None:
    def change(document: dict[str, Any]) -> None:
        document["policies"]["careful"]["manifest"]["mask"] = "no"

    name, content = forged(change)
    file = TRUE.keep(tmp_path / "var").with_name(name)
    file.write_bytes(content)
    code, out, _ = cfmon("verify", str(file))
    assert code == 1
    assert "policies.careful.manifest: altered: not in canonical form" in out
    assert "agrees" not in out


def test_a_wrong_id_is_reported_before_a_file_that_is_missing(file: Path, cfmon: Run) -> None:
    nowhere = ("--objects", "/nowhere")
    code, out, err = cfmon("verify", str(file), *nowhere)
    assert (code, out) == (2, "")
    assert "give the folder of models and policies with --objects" in err
    file.write_bytes(forged(later)[1])
    code, out, _ = cfmon("verify", str(file), *nowhere)
    assert (code, "renamed or replaced" in out) == (1, True)
    assert "agrees" not in out
    code, _, err = cfmon("verify", str(file.with_name("none")))
    assert (code, "--objects" in err) == (2, False)


def test_no_wrong_number_is_drawn(file: Path, cfmon: Run) -> None:
    def change(document: dict[str, Any]) -> None:
        document["verdict"]["profile"][0][1] += 0.01

    name, content = forged(change)
    file.with_name(name).write_bytes(content)
    code, out, err = cfmon("explain", str(file.with_name(name)), "-o", str(file.with_name("alarm.svg")))
    assert (code, out) == (2, "")
    assert "not drawn, because it is not verified (`cfmon verify` lists all differences): verdict.profile" in err


def test_no_picture_is_drawn_of_another_alarm_than_the_name_says(file: Path, cfmon: Run) -> None:
    target = str(file.with_name("alarm.svg"))
    assert cfmon("explain", str(file), "-o", target)[0] == 0
    file.write_bytes(forged(later)[1])
    code, out, err = cfmon("explain", str(file), "-o", target)
    assert (code, out, "renamed or replaced" in err) == (2, "", True)


# ---- evidence that somebody wrote ----


def placed(document: dict[str, Any]) -> None:
    """Give the alarm the id that follows from what it identifies, so that only the rest is wrong."""
    policies = {name: policy["sha256"] for name, policy in document["policies"].items()}
    world = Identity(document["model"], document["model_sha256"], policies, document["versions"], document["models"])
    spec = FormulaSpec(document["formula"], document["text"], causal_model=document["causal_model"])
    document["alert"] = alert_id(document["agent"], document["episode"], spec, world, document["first_seq"])


FORGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "no path": lambda document: document.update(path=[], seq=-1, first_seq=0, start_observed=False),
    "no path and no step": lambda document: document.update(path=[], seq=0, first_seq=0),
    "a state beyond all": lambda document: document["path"][0].__setitem__(0, 2**62),
    "a last state beyond all": lambda document: document["path"][-1].__setitem__(0, 2**62),
    "a state before all": lambda document: document["path"][0].__setitem__(0, -1),
    "an action beyond all": lambda document: document["path"][0].__setitem__(1, 2**62),
    "a step beyond all": lambda document: document.update(seq=2**62, first_seq=2**62, start_observed=False),
    "no formula": lambda document: document.update(text="\x1b[2J"),
    "no quantity": lambda document: document.update(text='"lost"'),
    "another formula": lambda document: document.update(text='P>=0.5 [ F<=3 "home" ]'),
    "a name that steers": lambda document: document.update(agent="\x1b[2J\x9b2J", model="\x1b]0;x\x07"),
    "an episode that steers": lambda document: document.update(episode="\x1b[2J\r\u202e\x9b2J", time=1.0, since=1.0),
}


@pytest.mark.parametrize("forgery", first(4, FORGED))
def test_forged_evidence_is_drawn_only_if_it_is_verified_and_steers_no_terminal(
    tmp_path: Path, cfmon: Run, forgery: str
) -> None:
    def change(document: dict[str, Any]) -> None:
        FORGED[forgery](document)
        placed(document)

    name, content = forged(change)
    file = TRUE.keep(tmp_path / "var").with_name(name)
    file.write_bytes(content)
    target = tmp_path / "alarm.svg"
    verified, *told = cfmon("verify", str(file))
    drawn, *said = cfmon("explain", str(file), "-o", str(target))
    assert (verified, drawn) in ((0, 0), (1, 2)), "nothing else, and no bug"
    shown = [*"".join(told + said).splitlines(), *(target.read_text().splitlines() if target.exists() else ())]
    assert all(line.isprintable() for line in shown)


@pytest.mark.parametrize(
    "text",
    first(
        3,
        [
            'regret(careful@2, P>=0.8 [ G<=1000000 !"lost" ])',
            'P>=0.8 [ F<=60 G<=60 F<=60 "lost" ]',
            "R>=0.5 [ C<=1000000 ]",
            'careful[900000].P>=0.5 [ F<=400 "lost" ]',
            'delta(nominal,careful[900000]).P>=0.5 [ F<=400 "lost" ]',
            'regret(careful@-1000, P>=0.8 [ G<=1000000 !"lost" ])',
            " & ".join(['P>=0.5 [ F<=30000 "lost" ]'] * 4),
        ],
    ),
)
def test_what_would_take_minutes_is_said_to_and_not_done(
    tmp_path: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    def change(document: dict[str, Any]) -> None:
        document["text"] = text
        placed(document)

    name, content = forged(change)
    file = TRUE.keep(tmp_path / "var").with_name(name)
    file.write_bytes(content)
    monkeypatch.setattr(verification, "derive_again", None)  # nobody begins
    for command in ("verify", "explain"):
        code, _, err = cfmon(command, str(file))
        assert (code, "may take minutes" in err, "--large" in err) == (2, True, True)
    monkeypatch.undo()
    assert work(read_evidence(TRUE.content)) < MAX_WORK / 100
