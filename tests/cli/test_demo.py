"""The demo, whole and real: broker, agent process, monitor, evidence and its verification, as a person runs it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import AsyncMock

import msgpack
import pytest

from monitor.cli.input_files import data_file
from monitor.demo.show import summarise
from monitor.demo.stage import load
from monitor.demo.watch import Watcher
from monitor.evidence.canonical import pack_plain
from monitor.evidence.signing import read_verifier
from monitor.model import MDP
from monitor.referee import derive
from monitor.sidecar.config.reading import load_config
from monitor.types import Verdict
from tests.cli.forging import with_digest
from tests.processes import fork_monitor
from tests.servers import PATIENCE
from tests.sidecar.keys import make_keys
from tests.tiers import examples, scaled, slow

LIVED = ("--steps", "120", "--interval", "0.01", "--seed")
Run = Callable[..., tuple[int, str, str]]


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


class Stage(NamedTuple):
    """The folder that a demo ran in, with the keys of its evidence."""

    folder: Path
    private: Path
    public: Path
    run: Ended

    @property
    def evidence(self) -> list[Path]:
        return sorted(file for file in (self.folder / KEPT / "evidence").iterdir() if file.suffix != ".sig")


KEPT = "var/demo/frozen-lake"


def started(*arguments: str, cwd: Path) -> Ended:
    out, err = cwd / "stdout.log", cwd / "stderr.log"
    for file in (out, err):
        file.write_bytes(b"")
    process = fork_monitor(*arguments, log=out, errors=err, cwd=cwd)
    try:
        return Ended(process.wait(PATIENCE), out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))
    finally:
        process.kill()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, patient: Path) -> Stage:
    """One run of the smaller scenario that signs its evidence, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("demo")
    private, public = make_keys(folder)
    text, unsigned = patient.read_text(), "store: {path: ../var/frozen-lake/cfmon.sqlite}"
    assert unsigned in text
    (folder / "frozen-lake.yaml").write_text(text.replace(unsigned, f"store: {{signing_key: {private.name}}}"))
    run = started("demo", "--config", "frozen-lake.yaml", *LIVED, "1", cwd=folder)
    return Stage(folder, private, public, run)


def test_an_alarm_fires_resolves_and_verifies(stage: Stage) -> None:
    assert (stage.run.code, stage.run.err) == (0, "")
    assert "ALARM firing" in stage.run.out
    assert "ALARM resolved" in stage.run.out
    assert "curl http://127.0.0.1:" in stage.run.out
    assert "all agree" in stage.run.out
    assert stage.evidence
    assert "\x1b" not in stage.run.out


def test_the_webhooks_of_a_configuration_are_not_used(patient: Path, tmp_path: Path) -> None:
    """Alarms of a simulated agent would page somebody."""
    config = tmp_path / "config.yaml"
    config.write_text(f"{patient.read_text()}\nwebhooks: {{pager: {{url: 'https://a.example'}}}}\n")
    assert load_config(config).webhooks
    assert load(config, tmp_path, "mqtt://127.0.0.1:1", 0).config.webhooks == {}


def test_it_ends_by_saying_how_to_look(stage: Stage) -> None:
    see, again = stage.run.out.splitlines()[-2:]
    for line, words in ((see, ["explain", "-o", "alarm.svg"]), (again, ["verify"])):
        command = line.split("cfmon ", 1)[1].split()
        assert command[:1] + command[2:] == words
        assert started(*command, cwd=stage.folder).code == 0
    assert (stage.folder / "alarm.svg").is_file()


@slow
@pytest.mark.parametrize("seed", ["2", "3"])
def test_other_seeds_do_it_too(tmp_path: Path, patient: Path, seed: str) -> None:
    """That the main scenario does, the page shows that a reader sees first (tests/docs/test_commands.py)."""
    run = started("demo", "--config", str(patient), *LIVED, seed, cwd=tmp_path)
    assert run.code == 0, run.out + run.err


def test_evidence_is_verified_once_the_monitor_has_written_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Watcher(MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)]), "")
    watcher.seen.alerts.append({"id": "a", "state": "resolved", "evidence": {"id": "late", "path": "/evidence/late"}})
    file = tmp_path / "evidence/late"

    async def wait(_seconds: float) -> None:  # what happens while the demo waits: it does, so the file comes
        file.parent.mkdir(parents=True)
        file.touch()

    async def verify(*command: str) -> SimpleNamespace:
        assert Path(command[-1]) == file
        assert file.is_file()
        return SimpleNamespace(wait=AsyncMock(return_value=0))

    monkeypatch.setattr(asyncio, "sleep", wait)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", verify)
    assert asyncio.run(summarise(watcher, tmp_path / "evidence", stopped=False)) == []


@slow
def test_too_short_a_run_says_what_did_not_happen(tmp_path: Path) -> None:
    run = started("demo", "--scenario", "frozen-lake", "--steps", "1", "--interval", "0.0", "--seed", "0", cwd=tmp_path)
    # Which of the two is missing depends on the one episode that is lived; that the run fails and says so does not.
    assert run.code == 1
    assert "demo: no alarm" in run.out


@pytest.mark.parametrize(("alerts", "says"), [((), "no alarm fired"), (("firing",), "no alarm resolved")])
def test_what_did_not_happen_is_said(tmp_path: Path, alerts: tuple[str, ...], says: str) -> None:
    watcher = Watcher(MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)]), "")
    watcher.seen.alerts += [{"id": "a", "state": state, "evidence": None} for state in alerts]
    (problem,) = asyncio.run(summarise(watcher, tmp_path, stopped=False))
    assert problem.startswith(says)


def test_after_ctrl_c_it_says_where_the_evidence_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watcher = Watcher(MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)]), "")
    watcher.seen.alerts.append({"id": "a", "state": "firing", "evidence": {"id": "e1"}})
    assert asyncio.run(summarise(watcher, tmp_path, stopped=True)) == []
    assert f"explain {tmp_path / 'e1'}" in capsys.readouterr().out


def places(value: object, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in plain data numbers stand."""
    match value:
        case dict():
            for key, item in value.items():
                yield from places(item, (*where, key))
        case list():
            for index, item in enumerate(value):
                yield from places(item, (*where, index))
        case float():
            yield where


def altered(content: bytes, place: tuple[Any, ...], *, digest_too: bool) -> bytes:
    altered_document = msgpack.unpackb(content)
    holder = altered_document
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] += 1e-3
    return with_digest(altered_document)[1] if digest_too else pack_plain(altered_document)


@pytest.fixture
def judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the referee says depends on the objects, which stay, and on what else it is given: .3 s saved each."""
    known: dict[str, Verdict] = {}

    def remembered(text: str, **given: Any) -> Verdict:  # noqa: ANN401 - as of derive
        asked = repr([text, *(item for item in given.items() if item[0] not in {"model", "policies", "models"})])
        if asked not in known:
            known[asked] = derive(text, **given)
        return known[asked]

    monkeypatch.setattr("monitor.evidence.rederivation.derive", remembered)


@scaled
@pytest.mark.usefixtures("judged_once")
@pytest.mark.parametrize("digest_too", [False, True])
def test_altering_any_number_of_the_verdict_fails(
    stage: Stage, tmp_path: Path, cfmon: Run, *, digest_too: bool
) -> None:
    content = stage.evidence[0].read_bytes()
    found = list(places(msgpack.unpackb(content)["verdict"], ("verdict",)))
    assert len(found) > 10
    for place in found[:: examples(4, 1)]:
        (tmp_path / "altered").write_bytes(altered(content, place, digest_too=digest_too))
        code, out, _ = cfmon("verify", str(tmp_path / "altered"), "--objects", str(stage.folder / KEPT / "objects"))
        assert code == 1, place
        assert "NOT VERIFIED: " + ("verdict" if digest_too else "evidence: its digest") in out


def test_verification_needs_the_true_objects(stage: Stage, tmp_path: Path, cfmon: Run) -> None:
    evidence = stage.evidence[0]
    code, out, _ = cfmon("verify", str(evidence), "--json")
    assert (code, json.loads(out)["verified"]) == (0, True)
    code, out, err = cfmon("verify", str(evidence), "--objects", str(tmp_path))
    assert (code, out) == (2, "")
    assert "--objects" in err
    shutil.copytree(evidence.parent.parent / "objects", tmp_path / "objects")
    for file in (tmp_path / "objects").iterdir():
        file.write_bytes(file.read_bytes() + b"0")
    code, out, _ = cfmon("verify", str(evidence), "--objects", str(tmp_path / "objects"))
    assert code == 1
    assert "altered" in out


def test_evidence_is_signed_as_it_is_kept(stage: Stage, cfmon: Run) -> None:
    folder, ids = stage.folder / KEPT, [file.name for file in stage.evidence]
    assert ids
    assert {file.name for file in (folder / "evidence").iterdir()} == {*ids, *(f"{name}.sig" for name in ids)}
    code, out, _ = cfmon("verify", str(folder / "evidence" / ids[0]), "--key", str(stage.public))
    assert (code, "signed by" in out) == (0, True)
    verifier = read_verifier(stage.public)
    for file in stage.evidence:
        assert verifier.accepts(file.with_name(f"{file.name}.sig").read_bytes(), file.read_bytes())
    secret = stage.private.read_bytes().splitlines()[1]
    for file in folder.rglob("*"):
        assert file.is_dir() or secret not in file.read_bytes(), file
    assert secret.decode() not in stage.run.out


def test_a_missing_fallback_stops_it_at_once(tmp_path: Path, cfmon: Run) -> None:
    for name in ("policies/icu-sepsis", "config"):
        shutil.copytree(data_file("config").parent / name, tmp_path / name)
    (tmp_path / "policies/icu-sepsis/clinicians.onnx").unlink()
    config = str(tmp_path / "config/icu-sepsis.yaml")
    code, _, err = cfmon("demo", "--config", config, "--output", str(tmp_path / "demo"))
    assert code == 2
    assert "icu-sepsis.yaml" in err
    assert "clinicians.onnx" in err
    assert "Traceback" not in err


def test_an_alarm_is_drawn(stage: Stage, tmp_path: Path, cfmon: Run) -> None:
    evidence = str(stage.evidence[0])
    code, out, _ = cfmon("explain", evidence, "-o", str(tmp_path / "alarm.svg"))
    assert code == 0
    assert "Had 'fallback' taken over" in out
    picture = (tmp_path / "alarm.svg").read_text()
    assert picture.startswith("<svg")
    assert "fallback would be in" in picture
    assert cfmon("explain", evidence, "-o", str(tmp_path / "again.svg"))[0] == 0
    assert (tmp_path / "again.svg").read_text() == picture


def test_an_alarm_is_drawn_in_pixels(stage: Stage, tmp_path: Path, cfmon: Run) -> None:
    assert cfmon("explain", str(stage.evidence[0]), "-o", str(tmp_path / "alarm.png"))[0] == 0
    assert (tmp_path / "alarm.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("out", "says"), [("alarm.gif", ".svg or .png"), ("no/such/folder.svg", "cannot write")])
def test_a_picture_that_cannot_be_written_says_why(stage: Stage, cfmon: Run, out: str, says: str) -> None:
    code, told, err = cfmon("explain", str(stage.evidence[0]), "-o", out)
    assert (code, told) == (2, "")
    assert says in err
