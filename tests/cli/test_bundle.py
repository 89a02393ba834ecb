"""A zip file with evidence and all that it follows from: what is in it, and what is refused."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.errors import EvidenceError, LimitError
from monitor.evidence.budget import Budget
from monitor.evidence.bundle import Bundle, pack_bundle, read_bundle
from monitor.evidence.document import read_evidence
from monitor.evidence.signing import read_signer
from tests.sidecar.alarms import KINDS, alarm
from tests.sidecar.keys import make_keys

Run = Callable[..., tuple[int, str, str]]
TRUE = alarm("regret with bounds")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    file = tmp_path / f"{TRUE.id}.zip"
    file.write_bytes(pack_bundle(TRUE.content, TRUE.read))
    return file


@pytest.mark.parametrize("kind", ["regret with bounds", "plain, the start dropped, other dynamics", "sampled"])
def test_it_holds_what_the_alarm_follows_from_and_nothing_else(kind: str) -> None:
    assert kind in KINDS
    one = alarm(kind)
    content = pack_bundle(one.content, one.read)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        there = {name: archive.read(name) for name in archive.namelist()}
    assert there.pop(f"evidence/{one.id}") == one.content
    assert {f"objects/{name}": object_ for name, object_ in one.objects.items()} == there
    assert pack_bundle(one.content, one.read) == content


def test_verify_and_explain_work_with_the_zip_alone(
    tmp_path: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = make_keys(tmp_path)
    file = TRUE.keep(tmp_path / "var")
    file.with_name(f"{TRUE.id}.sig").write_bytes(read_signer(private).sign(TRUE.content))
    away = tmp_path / "away"
    away.mkdir()
    monkeypatch.chdir(away)
    assert cfmon("evidence", "export", str(file))[0] == 0
    taken = away / f"{TRUE.id}.zip"
    (tmp_path / "var").rename(tmp_path / "gone")
    code, out, _ = cfmon("verify", taken.name, "--key", str(public))
    assert (code, out.splitlines()[-1].startswith("verified: ")) == (0, True)
    assert cfmon("explain", taken.name, "-o", "alarm.svg")[0] == 0
    assert (away / "alarm.svg").read_text().startswith("<svg")
    taken.rename(away / "alarm.zip")
    code, out, _ = cfmon("verify", "alarm.zip")
    assert (code, "as the name in the zip file says" in out) == (0, True)
    with zipfile.ZipFile(away / "alarm.zip") as archive:
        archive.extractall(away / "unpacked")
    assert cfmon("verify", str(away / "unpacked" / "evidence" / TRUE.id), "--key", str(public))[0] == 0
    assert cfmon("evidence", "export", "alarm.zip", "-o", "again.zip")[0] == 0
    assert (away / "again.zip").read_bytes() == (away / "alarm.zip").read_bytes()


def test_the_id_is_compared_with_the_name_of_the_zip(packed: Path, cfmon: Run) -> None:
    other = packed.rename(packed.with_name(f"{'0' * 32}.zip"))
    code, out, _ = cfmon("verify", str(other))
    assert (code, "renamed or replaced" in out) == (1, True)


def test_what_was_altered_is_not_packed_nor_verified(packed: Path, cfmon: Run) -> None:
    (model, *_) = TRUE.objects

    def read(sha256: str) -> bytes:
        return TRUE.read(sha256) + (b"x" if sha256 == model else b"")

    with pytest.raises(EvidenceError, match="altered"):
        pack_bundle(TRUE.content, read)
    with pytest.raises(LimitError):
        pack_bundle(TRUE.content, TRUE.read, most=100)
    with zipfile.ZipFile(packed) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[f"objects/{model}"] += b"x"
    write(packed, members)
    code, out, _ = cfmon("verify", str(packed))
    assert (code, "altered" in out) == (1, True)
    del members[f"objects/{model}"]
    write(packed, members)
    code, out, _ = cfmon("verify", str(packed))
    assert (code, f"objects/{model} cannot be read" in out) == (1, True)


def write(file: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    "members", [{}, {"evidence/x": b""}, {f"evidence/{n * 32}": b"" for n in "01"}, {f"a/evidence/{'0' * 32}": b""}]
)
def test_a_zip_without_one_alarm_is_refused(tmp_path: Path, members: dict[str, bytes]) -> None:
    write(tmp_path / "a.zip", members)
    with pytest.raises(EvidenceError, match="give one with one alarm"):
        read_bundle(tmp_path / "a.zip")


def test_damage_is_an_error_of_the_evidence_and_nothing_else(packed: Path, cfmon: Run) -> None:
    whole = packed.read_bytes()
    for place in range(0, len(whole), 41):
        packed.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            bundle = read_bundle(packed)
            for name in TRUE.objects:
                bundle.objects(name)
        except EvidenceError:
            pass
    packed.write_bytes(whole[:-30])
    code, out, err = cfmon("verify", str(packed))
    assert (code, out, "not a readable zip file" in err) == (2, "", True)
    with pytest.raises(EvidenceError, match="cannot be read"):
        read_bundle(packed.with_name("none.zip"))


def test_a_member_that_claims_to_be_huge_is_not_read(tmp_path: Path) -> None:
    name = f"evidence/{'0' * 32}"
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(80 << 20))
    with pytest.raises(EvidenceError, match="are allowed"):
        read_bundle(tmp_path / "bomb.zip")


BOUNDS = "monitor.evidence.budget."


@pytest.mark.parametrize("form", ["zip", "folder"])
@pytest.mark.parametrize("bound", ["MAX_OBJECT_BYTES", "MAX_MODEL_BYTES"])
def test_more_memory_than_evidence_of_any_origin_may_take_is_asked_for_with_large(
    bound: str, form: str, packed: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zip file of 3.1 MB took 6.3 GB."""
    monkeypatch.setattr(BOUNDS + bound, 1000)
    file = packed if form == "zip" else TRUE.keep(packed.parent / "var")
    for command in (("verify", str(file)), ("explain", str(file), "-o", str(packed.parent / "x.svg"))):
        code, out, err = cfmon(*command)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert (" bytes; if you trust its source, add --large" in err, "more than" in err) == (True, True)
        assert cfmon(*command, "--large")[0] == 0


def test_objects_that_unpack_to_more_than_the_bound_are_not_unpacked(
    packed: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is for all objects together; each is refused before memory is taken for it."""
    with zipfile.ZipFile(packed) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    bomb = f"objects/{read_evidence(TRUE.content).model_sha256}"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in held.items():
            archive.writestr(name, bytes(300 << 20) if name == bomb else content)
    assert packed.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        code, _, err = cfmon("verify", str(packed))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (code, "more than 268,435,456 bytes; if you trust its source, add --large" in err) == (2, True)
    assert peak < 20 << 20
    sizes = [len(content) for name, content in held.items() if name.startswith("objects/")]
    monkeypatch.setattr(BOUNDS + "MAX_OBJECT_BYTES", sum(sizes) - 1)
    bundle = read_bundle_of(held, packed)
    with pytest.raises(LimitError, match="add --large"):
        list(map(bundle.objects, TRUE.objects))
    monkeypatch.setattr(BOUNDS + "MAX_OBJECT_BYTES", sum(sizes))
    bundle = read_bundle_of(held, packed)
    assert [len(bundle.objects(sha256)) for sha256 in TRUE.objects]


def read_bundle_of(members: dict[str, bytes], file: Path) -> Bundle:
    write(file, members)
    return read_bundle(file, Budget())


def test_a_zip_with_members_without_end_is_refused_before_they_are_listed(tmp_path: Path) -> None:
    write(tmp_path / "many.zip", {f"{n:0200}": b"" for n in range(3000)})
    with pytest.raises(EvidenceError, match="far more members than evidence has"):
        read_bundle(tmp_path / "many.zip")


def test_a_file_that_is_too_large_for_evidence_is_not_read(tmp_path: Path, cfmon: Run) -> None:
    name = "0" * 32
    (tmp_path / "evidence").mkdir()
    with (tmp_path / "evidence" / name).open("wb") as file:
        file.truncate(1 << 32)  # it takes no space on the disk
    tracemalloc.start()
    try:
        code, _, err = cfmon("verify", str(tmp_path / "evidence" / name))
        listed, out, _ = cfmon("takeovers", str(tmp_path / "evidence"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (code, "larger than 16,777,216 bytes" in err) == (2, True)
    assert (listed, "larger than 16,777,216 bytes" in out) == (1, True)
    assert peak < 20 << 20
