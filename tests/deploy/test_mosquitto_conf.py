"""The broker's configuration, in a real mosquitto: a queued burst survives kill -9 whole."""

import contextlib
import os
import pwd
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

SHIPPED = Path(__file__).parents[2] / "deploy" / "mosquitto" / "mosquitto.conf"
MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
BURST = 3000  # three times mosquitto's default limit
PATIENCE = 20.0

pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is missing (Debian: mosquitto)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def written_for(port: int, directory: Path) -> Path:
    """The shipped file with its place in the container exchanged for a place here, and nothing else."""
    text = SHIPPED.read_text()
    text, listeners = re.subn(r"(?m)^listener 1883$", f"listener {port} 127.0.0.1", text)
    text, locations = re.subn(r"(?m)^persistence_location .*$", f"persistence_location {directory}/", text)
    assert (listeners, locations) == (1, 1)
    path = directory / "mosquitto.conf"
    path.write_text(f"{text}user {pwd.getpwuid(os.getuid()).pw_name}\n")
    return path


@contextlib.contextmanager
def broker(conf: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    assert MOSQUITTO
    with (
        (conf.parent / "log").open("ab") as log,
        subprocess.Popen([MOSQUITTO, "-c", conf], stdout=log, stderr=log) as it,
    ):
        try:
            deadline = time.monotonic() + PATIENCE
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                assert it.poll() is None, (conf.parent / "log").read_text()
                assert time.monotonic() < deadline, "mosquitto does not listen"
            yield it
        finally:
            it.kill()


def client(name: str) -> mqtt.Client:
    made = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
    made.max_queued_messages_set(0)
    return made


def subscribe_and_leave(port: int) -> None:
    """Leave a persistent session behind, as a monitor does that restarts."""
    connected, subscribed = threading.Event(), threading.Event()
    absent = client("monitor")
    absent.on_connect = lambda *_: connected.set()
    absent.on_subscribe = lambda *_: subscribed.set()
    absent.connect("127.0.0.1", port)
    absent.loop_start()
    assert connected.wait(PATIENCE)
    absent.subscribe("agents/+/steps", qos=1)
    assert subscribed.wait(PATIENCE)
    absent.disconnect()
    absent.loop_stop()


def publish_burst(port: int) -> None:
    publisher = client("agent")
    publisher.connect("127.0.0.1", port)
    publisher.loop_start()
    for number in range(BURST):
        sent = publisher.publish("agents/w1/steps", str(number), qos=1)
    sent.wait_for_publish(PATIENCE)
    assert sent.is_published()
    publisher.disconnect()
    publisher.loop_stop()


def receive(port: int) -> list[int]:
    numbers: list[int] = []
    everything = threading.Event()

    def take(_client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        numbers.append(int(message.payload))
        if len(numbers) == BURST:
            everything.set()

    back = client("monitor")
    back.on_message = take
    back.connect("127.0.0.1", port)
    back.loop_start()
    everything.wait(PATIENCE)
    back.disconnect()
    back.loop_stop()
    return numbers


def test_a_queued_burst_survives_kill_9_whole(tmp_path: Path) -> None:
    port = free_port()
    conf = written_for(port, tmp_path)
    with broker(conf, port):
        subscribe_and_leave(port)
        publish_burst(port)
    with broker(conf, port):
        numbers = receive(port)
    assert sorted(numbers) == list(range(BURST))
