"""The demo, whole and real: broker, agent process, monitor, evidence and its verification, as a person runs it."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import msgpack
import pytest
import yaml

from monitor.alarm import document
from monitor.alarm.canonical import pack_plain
from monitor.cli.files import data_file
from monitor.cli.show import DemoRun
from monitor.cli.watch import Watcher
from monitor.model import MDP
from monitor.referee import judge
from monitor.sidecar.config.reading import load_config
from monitor.types import Verdict
from tests.servers import PATIENCE
from tests.sidecar.keys import make_keys

Stage = tuple[Path, subprocess.CompletedProcess[str]]
FROZEN_LAKE = ("demo", "--scenario", "frozen-lake", "--steps", "120", "--interval", "0.01", "--seed")


def started(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "monitor", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """One run of the smaller scenario, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, started(*FROZEN_LAKE, "1", cwd=folder)


def evidence_files(folder: Path) -> list[Path]:
    return sorted((folder / "var/demo/frozen-lake/evidence").iterdir())


def test_an_alarm_fires_resolves_and_verifies(stage: Stage) -> None:
    folder, run = stage
    assert (run.returncode, run.stderr) == (0, "")
    assert "ALARM firing" in run.stdout
    assert "ALARM resolved" in run.stdout
    assert "curl http://127.0.0.1:" in run.stdout
    assert "all agree" in run.stdout
    assert evidence_files(folder)
    assert "\x1b" not in run.stdout


def test_the_webhooks_of_a_configuration_are_not_used(tmp_path: Path) -> None:
    """Alarms of a simulated agent would page somebody."""
    file = data_file("config/frozen-lake.yaml")
    read = load_config(file)
    content = yaml.safe_load(file.read_text()) | {
        "model": read.model,
        "webhooks": {"pager": {"url": "https://a.example"}},
    }
    content["policies"] = {name: str(path) for name, path in read.policies.items()}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(content))
    assert load_config(config).webhooks
    run = DemoRun(config, "lake", steps=1, seed=0, interval=0.0, output=tmp_path)
    assert run._load("mqtt://127.0.0.1:1", 0).config.webhooks == {}


def test_it_ends_by_saying_how_to_look(stage: Stage) -> None:
    folder, run = stage
    see, again = run.stdout.splitlines()[-2:]
    for line, words in ((see, ["explain", "-o", "alarm.svg"]), (again, ["verify"])):
        command = line.split("cfmon ", 1)[1].split()
        assert command[:1] + command[2:] == words
        assert started(*command, cwd=folder).returncode == 0
    assert (folder / "alarm.svg").is_file()


@pytest.mark.parametrize("seed", ["2", "3"])
def test_other_seeds_do_it_too(tmp_path: Path, seed: str) -> None:
    """That the main scenario does, the page shows that a reader sees first (tests/docs/test_commands.py)."""
    run = started(*FROZEN_LAKE, seed, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


def test_evidence_is_verified_once_the_monitor_has_written_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = DemoRun(tmp_path / "mine.yaml", "mine", 1, 0, 0.0, tmp_path)
    watcher = Watcher(MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)]), "")
    watcher.seen.alerts.append({"id": "a", "state": "resolved", "evidence": {"id": "late", "path": "/evidence/late"}})
    file = tmp_path / "mine/evidence/late"

    async def wait(_seconds: float) -> None:  # what happens while the demo waits: it does, so the file comes
        file.parent.mkdir(parents=True)
        file.touch()

    async def verify(*command: str) -> SimpleNamespace:
        assert Path(command[-1]) == file
        assert file.is_file()
        return SimpleNamespace(wait=AsyncMock(return_value=0))

    monkeypatch.setattr(asyncio, "sleep", wait)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", verify)

    async def end() -> list[str]:
        return await run._summarise(watcher, asyncio.Event())

    assert asyncio.run(end()) == []


def test_too_short_a_run_says_what_did_not_happen(tmp_path: Path) -> None:
    run = started("demo", "--scenario", "frozen-lake", "--steps", "1", "--interval", "0.0", "--seed", "0", cwd=tmp_path)
    # Which of the two is missing depends on the one episode that is lived; that the run fails and says so does not.
    assert run.returncode == 1
    assert "demo: no alarm" in run.stdout


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
    if digest_too:
        altered_document["digest"] = document._digest(altered_document)
    return pack_plain(altered_document)


@pytest.fixture
def judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the referee says depends on the objects, which stay, and on what else it is given: .3 s saved each."""
    known: dict[str, Verdict] = {}

    def remembered(text: str, **given: Any) -> Verdict:  # noqa: ANN401 - as of judge
        asked = repr([text, *(item for item in given.items() if item[0] not in {"model", "policies", "models"})])
        if asked not in known:
            known[asked] = judge(text, **given)
        return known[asked]

    monkeypatch.setattr("monitor.alarm.evidence.judge", remembered)


@pytest.mark.usefixtures("judged_once")
@pytest.mark.parametrize("digest_too", [False, True])
def test_altering_any_number_of_the_verdict_fails(
    stage: Stage, tmp_path: Path, cfmon: Callable[..., tuple[int, str, str]], *, digest_too: bool
) -> None:
    folder, _ = stage
    content = evidence_files(folder)[0].read_bytes()
    found = list(places(msgpack.unpackb(content)["verdict"], ("verdict",)))
    assert len(found) > 10
    for place in found:
        (tmp_path / "altered").write_bytes(altered(content, place, digest_too=digest_too))
        objects = str(folder / "var/demo/frozen-lake/objects")
        code, out, _ = cfmon("verify", str(tmp_path / "altered"), "--objects", objects)
        assert code == 1, place
        assert "NOT VERIFIED: " + ("verdict" if digest_too else "evidence: its digest") in out


def test_verification_needs_the_true_objects(
    stage: Stage, tmp_path: Path, cfmon: Callable[..., tuple[int, str, str]]
) -> None:
    folder, _ = stage
    evidence = evidence_files(folder)[0]
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


def test_evidence_is_signed_as_it_is_kept(tmp_path: Path, cfmon: Callable[..., tuple[int, str, str]]) -> None:
    private, public = make_keys(tmp_path)
    text = data_file("config/frozen-lake.yaml").read_text()
    text = text.replace("../policies", str(data_file("policies")))
    text = text.replace("store: {path: ../var/frozen-lake/cfmon.sqlite}", f"store: {{signing_key: {private.name}}}")
    (tmp_path / "signed.yaml").write_text(text)
    run = started("demo", "--config", "signed.yaml", *FROZEN_LAKE[3:], "1", cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    folder = tmp_path / "var/demo/signed"
    ids = [file.name for file in (folder / "evidence").iterdir() if file.suffix != ".sig"]
    assert ids
    assert {file.name for file in (folder / "evidence").iterdir()} == {*ids, *(f"{name}.sig" for name in ids)}
    for name in ids:
        code, out, _ = cfmon("verify", str(folder / "evidence" / name), "--key", str(public))
        assert (code, "signed by" in out) == (0, True)
    secret = private.read_bytes().splitlines()[1]
    for file in folder.rglob("*"):
        assert file.is_dir() or secret not in file.read_bytes(), file
    assert secret.decode() not in run.stdout


def test_a_missing_fallback_stops_it_at_once(tmp_path: Path) -> None:
    for name in ("monitor", "policies", "config"):
        shutil.copytree(
            data_file("config").parent / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    (tmp_path / "policies/icu-sepsis/clinicians.onnx").unlink()
    run = started("demo", cwd=tmp_path)
    assert run.returncode == 2
    assert "icu-sepsis.yaml" in run.stderr
    assert "clinicians.onnx" in run.stderr
    assert "Traceback" not in run.stderr


def test_an_alarm_is_drawn(stage: Stage, tmp_path: Path, cfmon: Callable[..., tuple[int, str, str]]) -> None:
    evidence = str(evidence_files(stage[0])[0])
    code, out, _ = cfmon("explain", evidence, "-o", str(tmp_path / "alarm.svg"))
    assert code == 0
    assert "Had 'fallback' taken over" in out
    picture = (tmp_path / "alarm.svg").read_text()
    assert picture.startswith("<svg")
    assert "fallback: where it is" in picture
    assert cfmon("explain", evidence, "-o", str(tmp_path / "again.svg"))[0] == 0
    assert (tmp_path / "again.svg").read_text() == picture
    assert cfmon("explain", evidence, "-o", str(tmp_path / "alarm.png"))[0] == 0
    assert (tmp_path / "alarm.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("out", "says"), [("alarm.gif", ".svg or .png"), ("no/such/folder.svg", "cannot write")])
def test_a_picture_that_cannot_be_written_says_why(
    stage: Stage, cfmon: Callable[..., tuple[int, str, str]], out: str, says: str
) -> None:
    code, told, err = cfmon("explain", str(evidence_files(stage[0])[0]), "-o", out)
    assert (code, told) == (2, "")
    assert says in err
