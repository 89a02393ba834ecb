"""The broker's configuration, in a real mosquitto: a queued burst survives kill -9 whole."""

import os
import pwd
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from tests.servers import PATIENCE, end, free_port, listens, need, wait_until
from tests.tiers import examples, scaled

SHIPPED = Path(__file__).parents[2] / "deploy" / "mosquitto" / "mosquitto.conf"
BURST = examples(1200, 3000)  # mosquitto's default limit is 1000
LONG = 4 * PATIENCE
"""Seconds for the burst: the broker writes its whole store after each change, on a disk that others use too."""


def written_for(port: int, directory: Path) -> Path:
    """The shipped file with its place in the container exchanged for a place here, and nothing else."""
    text = SHIPPED.read_text()
    text, listeners = re.subn(r"(?m)^listener 1883$", f"listener {port} 127.0.0.1", text)
    text, locations = re.subn(r"(?m)^persistence_location .*$", f"persistence_location {directory}/", text)
    assert (listeners, locations) == (1, 1)
    path = directory / "mosquitto.conf"
    path.write_text(f"{text}user {pwd.getpwuid(os.getuid()).pw_name}\n")
    return path


@contextmanager
def broker(conf: Path, port: int) -> Iterator[None]:
    """Ends as in a power cut."""
    log = conf.parent / "log"
    with log.open("ab") as output:
        command = [need("mosquitto", "mosquitto"), "-c", str(conf)]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: process.poll() is not None or listens(port), "mosquitto listens")
        assert process.poll() is None, log.read_text()
        yield
    finally:
        end(process, with_signal=signal.SIGKILL)


def on_disk(directory: Path) -> int:
    """How many messages the broker's store holds: each has its topic written out in it."""
    store = directory / "mosquitto.db"
    return store.read_bytes().count(b"agents/w1/steps") if store.exists() else 0


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
    sent.wait_for_publish(LONG)
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
    everything.wait(LONG)
    back.disconnect()
    back.loop_stop()
    return numbers


@scaled
def test_a_queued_burst_survives_kill_9_whole(tmp_path: Path) -> None:
    port = free_port()
    conf = written_for(port, tmp_path)
    with broker(conf, port):
        subscribe_and_leave(port)
        publish_burst(port)
        # An acknowledgement may be a moment ahead of the disk, also here; what is on disk has to survive.
        wait_until(lambda: on_disk(tmp_path) >= BURST, "the burst is on disk", patience=LONG)
    with broker(conf, port):
        numbers = receive(port)
    assert sorted(numbers) == list(range(BURST))
