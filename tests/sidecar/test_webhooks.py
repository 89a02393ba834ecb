"""Webhooks in a sidecar: what is configured, which changes are posted to which, what shows, and what a kill leaves."""

from __future__ import annotations

import json
import logging
import signal
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from monitor.errors import ConfigError
from monitor.model import MDP
from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.reading import Config, check_secrets, load_config
from monitor.sidecar.config.webhook import WebhookConfig
from monitor.sidecar.effects import Publication
from monitor.sidecar.outbox import Numbers, Outbox
from monitor.sidecar.outboxes import Outboxes
from monitor.sidecar.webhooks.webhooks import Webhooks
from tests.servers import PATIENCE, Mosquitto, end, sidecar, wait_until
from tests.sidecar.alert_documents import published
from tests.sidecar.project import CONFIG, write_project
from tests.sidecar.receiver import Receiver, receiver
from tests.sidecar.running import inside, publish, steps

RASH, CAREFUL, HOME = 0, 1, 5
FIRING = [(0, RASH), (1, CAREFUL)]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

PLAIN = """\
model: model.npz
policies: {nominal: nominal.yaml}
formulas: [{name: watch, formula: 'P>=0.8 [ G<=20 !"death" ]', alarm: {severity: critical}}]
webhooks:
"""


def load(tmp_path: Path, webhooks: str, environment: dict[str, str] | None = None) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(PLAIN + webhooks)
    return load_config(path, environment)


def error(tmp_path: Path, webhooks: str) -> str:
    with pytest.raises(ConfigError) as raised:
        check_secrets(load(tmp_path, webhooks))
    return str(raised.value)


# ---- the configuration ----


def test_paths_are_relative_to_the_file_and_a_key_may_come_from_the_environment(tmp_path: Path) -> None:
    text = "  pager: {url: 'https://hooks.example/a', secret_file: keys/pager, ca: ca.pem, give_up: 1h}\n"
    pager = load(tmp_path, text, {"CFMON_WEBHOOKS__PAGER__TIMEOUT": "3s"}).webhooks["pager"]
    assert (pager.secret_file, pager.ca) == (tmp_path / "keys" / "pager", tmp_path / "ca.pem")
    chat = load(tmp_path, text, {"CFMON_WEBHOOKS__CHAT__URL": "https://chat.example/hunter2"}).webhooks["chat"]
    assert chat.address == "https://chat.example"
    assert (pager.timeout, pager.give_up, pager.severities, pager.revisions) == (3.0, 3600.0, None, True)


@pytest.mark.parametrize(
    ("webhook", "line", "why"),
    [
        ("{}", "webhooks.pager", "give one of url and url_file"),
        ("{url: 'https://a.example/', url_file: a}", "webhooks.pager", "give one of url and url_file"),
        ("{url: 'http://a.example/hunter2'}", "webhooks.pager", "url is not encrypted; use https://"),
        ("{url: 'a.example/hunter2'}", "webhooks.pager", "url is not the URL of a webhook"),
        ("{url: 'http://localhost/hunter2', ca: ca.pem}", "webhooks.pager", "ca is for TLS"),
        ("{url: 'https://a.example/', ulr: b}", "webhooks.pager.ulr", "unknown key; did you mean 'url'?"),
        ("{url: 'https://a.example/', timeout: 5}", "webhooks.pager.timeout", "must be a duration with its unit"),
        ("{url: 'https://a.example/', severities: []}", "webhooks.pager.severities", "at least 1 item"),
        (
            "{url: 'https://a.example/', severities: [criticl]}",
            "webhooks.pager.severities[0]",
            "no formula has the severity 'criticl'; those of the formulas: critical",
        ),
        ("{url: 'https://a.example/', secret_file: absent}", "webhooks.pager.secret_file", "cannot be read"),
        ("{url_file: absent}", "webhooks.pager.url_file", "cannot be read"),
        ("{url_file: address}", "webhooks.pager.url_file", "is not encrypted; use https://"),
        ("{url: 'https://a.example/', secret_file: address}", "webhooks.pager.secret_file", "must contain whsec_"),
        ("{url: 'https://a.example/', ca: address}", "webhooks.pager.ca", "contains no PEM certificates"),
    ],
)
def test_a_mistake_names_its_place_and_not_the_secret(tmp_path: Path, webhook: str, line: str, why: str) -> None:
    (tmp_path / "address").write_text("http://a.example/hunter2\n")
    text = error(tmp_path, f"  pager: {webhook}\n")
    assert text.startswith(f"config.yaml, line 5, {line}: ")
    assert why in text
    assert "hunter2" not in text


def test_the_url_of_a_webhook_shows_in_no_repr_and_its_path_not_in_the_digest(tmp_path: Path) -> None:
    config = load(tmp_path, "  pager: {url: 'https://hooks.example/hunter2'}\n")
    assert "hunter2" not in f"{config!r} {config.webhooks['pager']!r} {config.model_dump(mode='json')}"
    other = load(tmp_path, "  pager: {url: 'https://hooks.example/other'}\n")
    elsewhere = load(tmp_path, "  pager: {url: 'https://other.example/hunter2'}\n")
    assert config.digest == other.digest != elsewhere.digest


# ---- which changes are posted ----


def posted(alerts: list[Publication], **settings: Any) -> list[tuple[str, str, int]]:  # noqa: ANN401 - any setting
    configs = {
        "all": WebhookConfig(url="http://localhost/"),
        "some": WebhookConfig(url="http://localhost/", **settings),
    }
    numbered = Webhooks(configs, "host-1", Numbers()).posts(alerts)
    assert [number for number, _ in numbered] == list(range(len(numbered)))
    documents = [(post.to, json.loads(post.payload)["data"]) for _, post in numbered]
    assert sum(to == "all" for to, _ in documents) == len(alerts)
    return [(data["agent"], data["state"], data["revision"]) for to, data in documents if to == "some"]


def test_severities_and_revisions_choose_what_is_posted() -> None:
    warning = {"agent": "bob", "severity": "warning"}
    alerts = [published(), published(**warning), published(revision=2), published(revision=3, state="resolved")]
    assert posted(alerts, severities=("critical",)) == [
        ("ada", "firing", 1),
        ("ada", "firing", 2),
        ("ada", "resolved", 3),
    ]
    assert posted(alerts, severities=("warning",)) == [("bob", "firing", 1)]
    assert posted(alerts, revisions=False) == [("ada", "firing", 1), ("bob", "firing", 1), ("ada", "resolved", 3)]


def test_repetitions_clearings_and_status_messages_are_not_posted() -> None:
    webhooks = Webhooks({"pager": WebhookConfig(url="http://localhost/")}, "host-1", Numbers())
    alert = published()
    repeated = Publication(alert.topic, alert.payload, repeats=True)
    others = [Publication(alert.topic, b""), Publication("cfmon/status/host-1", b'{"state":"offline"}')]
    assert webhooks.posts([repeated, *others]) == []


def test_broker_and_webhooks_share_the_numbers_and_each_settles_its_own() -> None:
    numbers = Numbers()
    webhooks = Webhooks({"pager": WebhookConfig(url="http://localhost/")}, "host-1", numbers)
    broker = Outbox(numbers=numbers)
    outgoing = Outboxes(broker, webhooks)
    first, second = published(), published(revision=2)
    numbered = [*outgoing.number([first]), *outgoing.number([second], known={second})]
    assert sorted(number for number, _ in numbered) == [0, 1, 2]
    assert [publication.to for _, publication in sorted(numbered, key=lambda each: each[0])] == ["pager", "", ""]
    outgoing.put(numbered)
    assert (len(broker), len(webhooks.outboxes["pager"])) == (2, 1)
    assert [number for number, _ in outgoing.waiting()] == [0, 1, 2]
    webhooks.outboxes["pager"].done(0)
    broker.done(1)
    assert outgoing.has_finished
    assert sorted(outgoing.finished()) == [0, 1]
    assert outgoing.finished() == []


# ---- a sidecar ----


@pytest.fixture
def there() -> Any:  # noqa: ANN401 - a generator of one receiver
    with receiver() as running:
        yield running


def project(tmp_path: Path, corridor: MDP, broker: Mosquitto, url: str, more: str = "") -> Path:
    (tmp_path / "secret").write_text(SECRET)
    text = CONFIG.replace("mqtt://127.0.0.1:1", broker.url)
    text += f"trust: {{enabled: false}}\nwebhooks: {{pager: {{url: '{url}', secret_file: {tmp_path}/secret{more}}}}}\n"
    return write_project(tmp_path / "project", corridor, text)


def states(there: Receiver) -> list[str]:
    """The states of the alarm in the order posted, without revisions."""
    return list(dict.fromkeys(post.event["data"]["state"] for post in there.accepted))


def test_an_alarm_is_posted_as_it_is_published_and_shows_in_metrics_and_status(
    tmp_path: Path, corridor: MDP, broker: Mosquitto, there: Receiver
) -> None:
    with inside(project(tmp_path, corridor, broker, there.url)) as running:
        get = partial(httpx.get, timeout=PATIENCE)
        wait_until(lambda: get(f"{running.url}/readyz").status_code == 200, "it is ready")
        assert 'cfmon_webhook_posts_total{webhook="pager",result="delivered"} 0.0' in get(f"{running.url}/metrics").text
        publish(broker, steps([*FIRING, (1, CAREFUL), (HOME, RASH), (HOME, RASH)]))
        wait_until(lambda: "resolved" in states(there), "the end of the alarm is posted")
        assert states(there) == ["firing", "resolved"]
        delivered = f'cfmon_webhook_posts_total{{webhook="pager",result="delivered"}} {len(there.posts)}.0'
        wait_until(lambda: delivered in get(f"{running.url}/metrics").text, "the posts are counted")
        assert 'cfmon_webhook_waiting{webhook="pager"} 0.0' in get(f"{running.url}/metrics").text
        [shown] = get(f"{running.url}/api/status").json()["webhooks"]
        assert shown == {
            "name": "pager",
            "address": there.url.partition("/alerts")[0],
            "waiting": 0,
            "problem": "",
            "failing_since": None,
        }
    [first, *_] = there.posts
    assert first.event["source"] == f"/cfmon/{running.service.client_id}"
    assert first.event["subject"] == "ada/watch"
    assert first.headers["webhook-signature"].startswith("v1,")


def test_a_killed_monitor_posts_what_waited_once_it_is_back(tmp_path: Path, corridor: MDP, broker: Mosquitto) -> None:
    failed = 'cfmon_webhook_posts_total{webhook="pager",result="failed"}'
    with receiver(listening=False) as there:
        config = project(tmp_path, corridor, broker, there.url)
        with sidecar(config) as running:
            publish(broker, steps(FIRING))
            wait_until(lambda: (running.metric('cfmon_webhook_waiting{webhook="pager"}') or 0) >= 1, "a post waits")
            wait_until(lambda: (running.metric(failed) or 0) >= 1, "an attempt failed")
            [shown] = json.loads(running.get("/api/status"))["webhooks"]
            assert shown["problem"] == "Connection refused"
            assert shown["failing_since"] is not None
            end(running.process, with_signal=signal.SIGKILL)
            assert "secret-path" not in running.log
            assert "webhook pager: http://localhost:" in running.log
        there.listen()
        with sidecar(config):
            wait_until(lambda: there.accepted, "what waited is posted")
            assert (there.accepted[0].event["data"]["state"], there.accepted[0].revision) == ("firing", 1)
            publish(broker, steps([*FIRING, (1, CAREFUL), (HOME, RASH), (HOME, RASH)])[2:])
            wait_until(lambda: "resolved" in states(there), "what followed is posted too")
            revisions = [post.revision for post in there.accepted]
            assert revisions == sorted(revisions)


def test_a_receiver_that_hangs_delays_neither_steps_nor_the_end(
    tmp_path: Path, corridor: MDP, broker: Mosquitto, there: Receiver
) -> None:
    def hang(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read()  # until the client gives up

    there.usual = hang
    with sidecar(project(tmp_path, corridor, broker, there.url, ", timeout: 1h")) as running:
        publish(broker, steps(FIRING))
        wait_until(lambda: there.posts, "the first post arrives")
        publish(broker, steps([*FIRING, (1, CAREFUL), (HOME, RASH), (HOME, RASH)])[2:])
        accepted = 'cfmon_messages_total{result="accepted"}'
        wait_until(lambda: running.metric(accepted) == 5.0, "every step is accepted")
        assert running.stop() == 0
    assert len(there.posts) == 1


def test_other_webhooks_need_a_restart_and_files_do_not(
    tmp_path: Path, corridor: MDP, broker: Mosquitto, there: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="monitor.service")
    config = project(tmp_path, corridor, broker, there.url)
    with inside(config, again=partial(assemble, config)) as running:
        wait_until(lambda: httpx.get(f"{running.url}/readyz", timeout=PATIENCE).status_code == 200, "it is ready")
        text = config.read_text()
        config.write_text(text.replace("secret-path", "other-path"))
        running.reload()
        refused = "webhooks: read at start only; restart the monitor to change it, or undo the change"
        wait_until(lambda: refused in caplog.text, "the change is refused")
        assert "other-path" not in caplog.text
        config.write_text(text)
        (tmp_path / "secret").write_text(f"{SECRET} {SECRET}")
        publish(broker, steps(FIRING))
        wait_until(lambda: there.posts, "the alarm is posted")
    assert len(there.posts[0].headers["webhook-signature"].split(" ")) == 2
