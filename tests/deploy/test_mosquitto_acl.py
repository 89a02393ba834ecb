"""The listener with TLS and the access rules as shipped, in a real mosquitto: each may do its own, and no more."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiomqtt
import pytest
import trustme

from monitor.sidecar.effects import Publication
from monitor.sidecar.mqtt.broker import Broker, Tls
from tests.servers import PATIENCE, Mosquitto, free_port, mosquitto
from tests.sidecar.side import STATUS, Side

MONITOR = "test"
"""The client id of `Side`."""

SHIPPED = Path(__file__).parents[2] / "deploy" / "mosquitto"


@dataclass(frozen=True)
class Site:
    """A broker as shipped, and a certificate for each name."""

    server: Mosquitto
    folder: Path

    def tls(self, name: str) -> Tls:
        return Tls(self.folder / "ca.crt", self.folder / f"{name}.crt", self.folder / f"{name}.key")

    def client(self, name: str, client_id: str | None = None) -> aiomqtt.Client:
        """Who has the certificate of `name`; `client_id`: the id it asks for, else its name."""
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        context.load_cert_chain(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        return aiomqtt.Client("localhost", self.server.port, identifier=client_id or name, tls_context=context)

    def monitor(self) -> Broker:
        return Broker("localhost", self.server.port, tls=self.tls("cfmon"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("certs")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.crt"))
    for name in ("broker", "cfmon", "ada", "eve", "operator"):
        issued = ca.issue_cert("localhost" if name == "broker" else f"{name}.example", common_name=name)
        issued.cert_chain_pems[0].write_to_path(str(folder / f"{name}.crt"))
        issued.private_key_pem.write_to_path(str(folder / f"{name}.key"))
    text = (SHIPPED / "secure.conf").read_text()
    text = text.replace("/mosquitto/certs/", f"{folder}/").replace("/mosquitto/config/", f"{SHIPPED}/")
    assert "/mosquitto/certs" not in text
    port = free_port()
    listener, lines = re.subn(r"(?m)^listener 8883$", "", text)
    assert lines == 1
    with mosquitto(tmp_path_factory.mktemp("m"), *listener.splitlines(), port=port) as server:
        yield Site(server, folder)


def test_the_monitor_hears_each_agent_under_its_own_name_only(site: Site) -> None:
    async def scenario() -> None:
        side = Side(site.monitor())
        await side.until(lambda: side.changes == [True])
        async with site.client("eve") as eve:
            await eve.publish("agents/ada/steps", b"forged", qos=1)
            await eve.publish("cfmon/alerts/ada/watch", b"forged", qos=1)
            await eve.publish("agents/eve/steps", b"own", qos=1)
        assert await side.take(1, acknowledge=True) == [b"own"], "in order: the forged one would have come before"
        await side.stop()

    asyncio.run(scenario())


def test_alerts_and_status_go_out_to_who_may_hear_them(site: Site) -> None:
    async def scenario() -> None:
        side = Side(site.monitor())
        await side.until(lambda: side.changes == [True])
        async with site.client("operator") as operator, site.client("ada") as ada:
            await operator.subscribe("cfmon/#", qos=1)
            await ada.subscribe("#", qos=1)  # mosquitto grants it, and then delivers nothing
            await operator.publish("cfmon/alerts/ada/watch", b"forged", qos=1)
            said = [("agents/ada/steps", b"not ours"), ("cfmon/alerts/ada/watch", b"alert"), (STATUS, b"status")]
            side.outbox.put(side.outbox.number([Publication(topic, payload) for topic, payload in said]))
            async with asyncio.timeout(PATIENCE):
                heard = [await anext(operator.messages)]
                while heard[-1].payload != b"status":
                    heard.append(await anext(operator.messages))
            await ada.publish("agents/ada/steps", b"own", qos=1)  # what was for it came before the acknowledgement
            assert len(ada.messages) == 0
        assert [(str(message.topic), message.payload) for message in heard if not message.retain] == said[1:]
        assert await side.take(1, acknowledge=True) == [b"own"], "what the monitor itself sent was not let through"
        await side.stop()

    asyncio.run(scenario())


def test_an_agent_that_asks_for_the_monitors_client_id_gets_neither_its_session_nor_its_steps(site: Site) -> None:
    steps = [b"%d" % n for n in range(20)]

    async def scenario() -> None:
        side = Side(site.monitor())
        await side.until(lambda: side.changes == [True])
        async with site.client("ada") as ada:
            for half in (steps[:10], steps[10:]):
                async with site.client("eve", MONITOR) as eve:  # in the monitor's place, if that could be had
                    await eve.publish("agents/eve/steps", b"eve", qos=1)
                for payload in half:
                    await ada.publish("agents/ada/steps", payload, qos=1)
            assert await side.take(22, acknowledge=True) == [b"eve", *steps[:10], b"eve", *steps[10:]]
            assert side.changes == [True], "nobody threw the monitor out"
            await side.stop()
            for payload in steps:  # these wait for the monitor
                await ada.publish("agents/ada/steps", payload, qos=1)
            async with site.client("eve", MONITOR):
                pass
        side = Side(site.monitor())
        assert await side.take(20, acknowledge=True) == steps
        await side.stop()

    asyncio.run(scenario())


def test_nobody_is_let_in_without_a_certificate(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        side = Side(Broker("localhost", site.server.port, username="cfmon", tls=Tls(site.folder / "ca.crt")))
        await side.until(lambda: "cannot connect" in caplog.text)
        assert side.changes == []
        await side.stop()

    asyncio.run(scenario())
