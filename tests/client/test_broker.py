"""The broker's address and the client's credentials: what is accepted, what is refused, and TLS with a real broker."""

from __future__ import annotations

import gc
import subprocess
from pathlib import Path

import cfmon_client
import pytest
import trustme
from cfmon_client import Broker, ClientError

from tests.servers import mosquitto, need, wait_until

PASSWORD = "a secret:/@"  # must be quoted in a URL


def test_a_url_has_defaults_and_its_credentials_are_not_shown() -> None:
    broker = Broker("mqtt://arm-7:a%20secret@broker.example")
    assert (broker.host, broker.port, broker.tls) == ("broker.example", 1883, False)
    assert broker.credentials() == ("arm-7", "a secret")
    assert "secret" not in repr(broker) + broker.address
    assert Broker("mqtts://[::1]").address == "mqtts://[::1]:8883"
    assert Broker("mqtt://a:b@host:7", username="c", password="d").credentials() == ("c", "d")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"url": "localhost:1883"}, "must be mqtt://host:port"),
        ({"url": "ws://localhost"}, "must be mqtt://host:port"),
        ({"url": "mqtt://localhost/topic"}, "must be mqtt://host:port"),
        ({"url": "mqtt://localhost:99999"}, "is not a URL"),
        ({"url": "mqtt://localhost:0"}, "needs a port"),
        ({"url": "mqtt://localhost", "ca": "ca.crt"}, "ca is for TLS"),
        ({"url": "mqtt://localhost", "password": "x"}, "a password is given without a username"),
        ({"url": "mqtts://localhost", "ca": "missing.crt"}, "ca: missing.crt cannot be read: No such file"),
        ({"url": "mqtts://localhost", "key": "k"}, "key is given without certificate"),
        ({"url": "mqtts://localhost", "certificate": "missing.crt"}, "certificate: missing.crt cannot be read"),
        ({"url": "mqtt://localhost", "username_file": "missing"}, "username_file: missing cannot be read"),
    ],
)
def test_a_wrong_setting_is_named(arguments: dict[str, str], problem: str) -> None:
    with pytest.raises(ClientError, match=problem):
        Broker(**arguments)


def test_files_without_a_secret_or_a_certificate_are_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("two\nlines\n")
    with pytest.raises(ClientError, match=r"password_file: .*wrong must contain one line of text"):
        Broker("mqtt://localhost", username="u", password_file=wrong)
    with pytest.raises(ClientError, match=r"ca: .*wrong contains no PEM certificates"):
        Broker("mqtts://localhost", ca=wrong)
    with pytest.raises(ClientError, match=r"certificate: .*wrong and the key in .*wrong are not a pair"):
        Broker("mqtts://localhost", certificate=wrong)


# aiomqtt leaves the socket of a refused connection to the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
def test_steps_go_over_tls_with_certificate_and_password(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ca, other = trustme.CA(), trustme.CA()
    issued = {"broker": ca.issue_cert("localhost"), "arm-7": ca.issue_cert("arm-7.example")}
    ca.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    other.cert_pem.write_to_path(str(tmp_path / "other.crt"))
    for name, certificate in issued.items():
        certificate.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
        for part in certificate.cert_chain_pems:
            part.write_to_path(str(tmp_path / f"{name}.crt"), append=True)
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    command = [need("mosquitto_passwd", "mosquitto"), "-b", "-c", str(tmp_path / "passwords"), "arm-7", PASSWORD]
    subprocess.run(command, check=True, capture_output=True)
    files = [f"{option} {tmp_path / name}" for option, name in TLS_FILES.items()]
    lines = [*files, "require_certificate true", "allow_anonymous false", f"password_file {tmp_path / 'passwords'}"]
    with mosquitto(tmp_path / "mosquitto", *lines) as server:
        good = Broker(
            f"mqtts://localhost:{server.port}",
            username="arm-7",
            password_file=tmp_path / "password",
            ca=tmp_path / "ca.crt",
            certificate=tmp_path / "arm-7.crt",
            key=tmp_path / "arm-7.key",
        )
        with cfmon_client.publish(good, "arm-7") as steps:
            steps.step(0, 0)
            wait_until(steps.flush, "the step is published")
            assert steps.status.published == 1
        for changes, reason in (({"ca": "other.crt"}, "CERTIFICATE_VERIFY_FAILED"), ({"password": "no"}, "ot authori")):
            text = {key: value for key, value in vars(good).items() if key not in {*changes, "password_file"}}
            files_of = {key: tmp_path / value if key == "ca" else value for key, value in changes.items()}
            wrong = cfmon_client.publish(Broker(**{"password": PASSWORD, **text, **files_of}), "arm-7")
            problem = wait_until(lambda wrong=wrong: wrong.status.problem, "the refusal is reported")  # type: ignore[misc]
            wrong.close(0.0)
            assert reason in problem
            gc.collect()
    assert PASSWORD not in caplog.text


TLS_FILES = {"cafile": "ca.crt", "certfile": "broker.crt", "keyfile": "broker.key"}
