"""MQTT over TLS against a real mosquitto: who is let in, who is not, each told in one line without a secret."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiomqtt
import pytest
import trustme

from monitor.errors import ConfigError
from monitor.sidecar.mqtt.broker import Broker, Tls, parse_broker
from monitor.sidecar.mqtt.tls import make_context
from tests.servers import Mosquitto, mosquitto, need
from tests.sidecar.side import Side

PASSWORD = "s3cret: on/the@wire"
HUNG_UP = r"(reset by peer|closed the connection|EOF) before CONNACK; .* requires a client certificate"
"""Depending on who is faster, the alert that says why is overtaken by the reset of the connection."""

LONG_AGO = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Papers:
    """A CA, what it signed, and another that nobody trusts; all as PEM files."""

    folder: Path
    ca: trustme.CA

    def file(self, name: str) -> Path:
        return self.folder / name

    def issue(self, name: str, *identities: str, by: trustme.CA | None = None, expired: bool = False) -> Tls:
        not_after = LONG_AGO if expired else None
        issued = (by or self.ca).issue_cert(*identities, common_name=name, not_before=None, not_after=not_after)
        issued.cert_chain_pems[0].write_to_path(str(self.file(f"{name}.crt")))
        issued.private_key_pem.write_to_path(str(self.file(f"{name}.key")))
        return Tls(self.file("ca.crt"), self.file(f"{name}.crt"), self.file(f"{name}.key"))

    def listener(self, name: str) -> list[str]:
        """Mosquitto's lines: with a certificate, a client certificate asked for, and a password."""
        return [
            f"cafile {self.file('ca.crt')}",
            f"certfile {self.file(f'{name}.crt')}",
            f"keyfile {self.file(f'{name}.key')}",
            "require_certificate true",
            "allow_anonymous false",
            f"password_file {self.file('passwords')}",
        ]


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    made = Papers(tmp_path_factory.mktemp("papers"), trustme.CA())
    made.ca.cert_pem.write_to_path(str(made.file("ca.crt")))
    other = trustme.CA()
    other.cert_pem.write_to_path(str(made.file("other-ca.crt")))
    made.issue("broker", "localhost", "127.0.0.1")
    made.issue("elsewhere", "elsewhere.example")
    made.issue("expired-broker", "localhost", expired=True)
    made.issue("cfmon", "cfmon.example")
    made.issue("expired-cfmon", "cfmon.example", expired=True)
    made.issue("stranger", "cfmon.example", by=other)
    made.file("password").write_text(f"{PASSWORD}\n")
    made.file("wrong-password").write_text(f"not {PASSWORD}\n")
    command = [need("mosquitto_passwd", "mosquitto"), "-b", "-c", str(made.file("passwords")), "cfmon", PASSWORD]
    subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, papers: Papers) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path_factory.mktemp("broker"), *papers.listener("broker")) as running:
        yield running


@pytest.fixture
def welcome(papers: Papers, server: Mosquitto) -> Broker:
    """What is let in."""
    tls = Tls(papers.file("ca.crt"), papers.file("cfmon.crt"), papers.file("cfmon.key"))
    return Broker(
        "localhost", server.port, username="cfmon", password_file=papers.file("password"), tls=tls, username_file=None
    )


async def publish(broker: Broker, payloads: list[bytes]) -> None:
    assert broker.tls is not None
    assert broker.tls.certificate is not None
    context = ssl.create_default_context(cafile=broker.tls.ca)
    context.load_cert_chain(broker.tls.certificate, broker.tls.key)
    async with aiomqtt.Client(
        broker.host, broker.port, username="cfmon", password=PASSWORD, tls_context=context
    ) as client:
        for payload in payloads:
            await client.publish("agents/ada/steps", payload, qos=1)


def test_with_certificate_user_and_password_steps_come_in_and_are_acknowledged(welcome: Broker) -> None:
    async def scenario() -> None:
        side = Side(welcome)
        await side.until(lambda: side.changes == [True])
        large = [b"%d" % n * 5000 for n in range(10)]  # several records each
        await publish(welcome, [*large, *(b"%d" % n for n in range(500))])
        assert await side.take(510, acknowledge=True) == [*large, *(b"%d" % n for n in range(500))]
        await side.stop()
        again = Side(welcome)
        await again.until(lambda: again.changes == [True])
        await publish(welcome, [b"last"])
        assert await again.take(1, acknowledge=True) == [b"last"], "all before were acknowledged"
        await again.stop()

    asyncio.run(scenario())


def test_an_address_is_verified_as_a_name_is(welcome: Broker) -> None:
    async def scenario() -> None:
        side = Side(replace(welcome, host="127.0.0.1"))
        await side.until(lambda: side.changes == [True])
        await side.stop()

    asyncio.run(scenario())


def refused(broker: Broker, caplog: pytest.LogCaptureFixture) -> str:
    """The line in which the first of two tries is told."""

    async def scenario() -> None:
        side = Side(broker)
        await side.until(lambda: len(caplog.messages) >= 2)
        assert side.changes == []
        await side.stop()

    asyncio.run(scenario())
    assert not any("\n" in line for line in caplog.messages)
    assert PASSWORD not in caplog.text
    return caplog.messages[0]


Change = Callable[[Broker], Broker]


def shows(papers: Papers, name: str, ca: str | None = "ca.crt") -> Change:
    """Shows these papers, and trusts that CA."""
    trusted = None if ca is None else papers.file(ca)
    tls = Tls(trusted, papers.file(f"{name}.crt"), papers.file(f"{name}.key"))
    return lambda broker: replace(broker, tls=tls)


CASES: dict[str, tuple[Callable[[Papers], Change], str]] = {
    "wrong CA": (
        lambda papers: shows(papers, "cfmon", "other-ca.crt"),
        "its certificate is not accepted: self-signed certificate in certificate chain",
    ),
    "no CA of ours": (
        lambda papers: shows(papers, "cfmon", None),
        "its certificate is not accepted: self-signed certificate in certificate chain",
    ),
    "no certificate": (
        lambda papers: lambda b: replace(b, tls=Tls(papers.file("ca.crt"))),
        HUNG_UP + "|it requires a client certificate: set mqtt.certificate and mqtt.key",
    ),
    "our certificate expired": (
        lambda papers: shows(papers, "expired-cfmon"),
        HUNG_UP + "|it reports that our certificate has expired",
    ),
    "our certificate from elsewhere": (
        lambda papers: shows(papers, "stranger"),
        HUNG_UP + "|it does not trust the CA of our certificate",
    ),
    "wrong password": (
        lambda papers: lambda b: replace(b, password_file=papers.file("wrong-password")),
        "the broker refuses the connection: Not authorized",
    ),
    "no password": (
        lambda _papers: lambda b: replace(b, password_file=None),
        "the broker refuses the connection: Not authorized",
    ),
    "password file gone": (
        lambda papers: lambda b: replace(b, password_file=papers.file("gone")),
        "gone cannot be read: No such file",
    ),
    "plain": (lambda _papers: lambda b: replace(b, tls=None), HUNG_UP),
}


@pytest.mark.parametrize("case", CASES)
def test_who_is_not_let_in_is_told_why_and_tries_again(
    case: str, papers: Papers, welcome: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    change, expected = CASES[case]
    line = refused(change(papers)(welcome), caplog)
    assert f"cannot connect to mqtt{'' if case == 'plain' else 's'}://localhost:{welcome.port}: " in line
    assert re.search(expected, line), line


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("elsewhere", "its certificate is not accepted: Hostname mismatch, certificate is not valid for 'localhost'"),
        ("expired-broker", "its certificate is not accepted: certificate has expired"),
    ],
)
def test_a_broker_that_cannot_prove_its_name_gets_nothing_from_us(
    shown: str, expected: str, papers: Papers, welcome: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with mosquitto(papers.folder / f"m-{shown}", *papers.listener(shown)) as impostor:
        assert expected in refused(replace(welcome, port=impostor.port), caplog)
        assert "as test" not in impostor.log, "no credentials were sent"


def test_a_broker_without_tls_is_reported_as_that(
    tmp_path: Path, welcome: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with mosquitto(tmp_path / "m") as plain:
        assert re.search(HUNG_UP, refused(replace(welcome, port=plain.port), caplog))


def test_tls_before_1_2_is_refused_and_nothing_is_left_unverified(papers: Papers) -> None:
    context = make_context(Tls(papers.file("ca.crt")))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.keylog_filename is None


def test_what_is_exchanged_on_disk_is_used_at_the_next_try(
    tmp_path: Path, papers: Papers, welcome: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    for name, first in (("certificate", "expired-cfmon.crt"), ("key", "expired-cfmon.key"), ("password", "")):
        (tmp_path / name).write_bytes(papers.file(first).read_bytes() if first else b"not yet")
    tls = Tls(papers.file("ca.crt"), tmp_path / "certificate", tmp_path / "key")
    broker = replace(welcome, tls=tls, password_file=tmp_path / "password")

    async def scenario() -> None:
        side = Side(broker)
        await side.until(lambda: "cannot connect" in caplog.text)
        (tmp_path / "key").write_bytes(papers.file("cfmon.key").read_bytes())
        (tmp_path / "certificate").write_bytes(papers.file("cfmon.crt").read_bytes())
        (tmp_path / "password").write_text(PASSWORD)
        await side.until(lambda: side.changes == [True])
        await side.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        (lambda p: Tls(p.file("none.crt")), r"^mqtt\.ca: .*none\.crt cannot be read: No such file"),
        (lambda p: Tls(p.file("password")), r"^mqtt\.ca: .*password contains no PEM certificates"),
        (lambda p: Tls(None, p.file("none")), r"^mqtt\.certificate: .*none cannot be read"),
        (lambda p: Tls(None, p.file("cfmon.crt"), p.file("none")), r"^mqtt\.key: .*none cannot be read"),
        (
            lambda p: Tls(None, p.file("cfmon.crt")),
            r"^mqtt\.certificate: .*the key in it are not a certificate and key",
        ),
        (lambda p: Tls(None, p.file("cfmon.crt"), p.file("broker.key")), "do not match"),
        (lambda p: Tls(None, p.file("cfmon.crt"), p.file("locked.key")), "or the key is encrypted"),
    ],
)
def test_a_file_that_is_no_certificate_is_named(papers: Papers, tls: Callable[[Papers], Tls], expected: str) -> None:
    command = ["openssl", "ec", "-in", str(papers.file("cfmon.key")), "-aes256", "-passout", "pass:x"]
    subprocess.run([*command, "-out", str(papers.file("locked.key"))], check=True, capture_output=True)
    with pytest.raises(ConfigError, match=expected):
        make_context(tls(papers))


def test_a_password_in_a_broker_is_not_in_its_repr() -> None:
    broker = parse_broker("mqtts://user:hunter2@localhost")
    assert broker.credentials() == ("user", "hunter2")
    assert "hunter2" not in repr(broker) + broker.address
