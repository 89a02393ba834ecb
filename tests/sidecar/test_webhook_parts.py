"""Parts of a webhook that need no network: URL, signature, event, back-off."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.sidecar.webhooks.backoff import LONGEST, LONGEST_REQUESTED, parse_retry_after, pause_after
from monitor.sidecar.webhooks.cloud_event import read_alert, write_event
from monitor.sidecar.webhooks.signature import parse_secrets, signed_headers
from monitor.sidecar.webhooks.target import parse_target
from tests.sidecar.alert_documents import alert_document

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()


@pytest.mark.parametrize(
    ("url", "address", "path"),
    [
        ("https://hooks.example", "https://hooks.example", "/"),
        ("https://hooks.example:443/a/b?c=d", "https://hooks.example", "/a/b?c=d"),
        ("https://hooks.example:8443/a", "https://hooks.example:8443", "/a"),
        ("http://localhost:5678/webhook", "http://localhost:5678", "/webhook"),
        ("http://[::1]/x", "http://[::1]", "/x"),
    ],
)
def test_a_url_is_shown_as_scheme_and_host(url: str, address: str, path: str) -> None:
    target = parse_target(url, plain=False)
    assert (target.address, target.path) == (address, path)
    assert path == "/" or path not in repr(target)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://hooks.example/secret", "is not the URL of a webhook"),
        ("https:///secret", "is not the URL of a webhook"),
        ("https://hooks.example:0/secret", "is not the URL of a webhook"),
        ("https://hooks.example:99999/secret", "is not a URL"),
        ("https://" + "a" * 64 + ".example/secret", "is not a URL"),
        ("https://user:secret@hooks.example/", "must not contain user:password@"),
        ("https://hooks.example/#secret", "must not contain user:password@ or a fragment"),
        ("https://hooks.example/secret\n", "printable ASCII"),
        ("https://hooks.example/a secret", "printable ASCII"),
        ("https://höoks.example/secret", "printable ASCII"),
        ("http://hooks.example/secret", "is not encrypted"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_being_repeated(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        parse_target(url, plain=False)
    assert "secret" not in str(refused.value)


def test_plain_http_beyond_loopback_must_be_allowed() -> None:
    assert parse_target("http://hooks.example/a", plain=True).address == "http://hooks.example"


@given(body=st.binary(max_size=100), seconds=st.floats(0, 4e9))
def test_a_signature_is_that_of_standard_webhooks(body: bytes, seconds: float) -> None:
    headers = signed_headers("abc-1", body, parse_secrets(f"{SECRET} {OTHER}"), seconds)
    assert headers["webhook-id"] == "abc-1"
    assert int(headers["webhook-timestamp"]) <= seconds < int(headers["webhook-timestamp"]) + 1
    for secret, signature in zip((SECRET, OTHER), headers["webhook-signature"].split(" "), strict=True):
        key = base64.b64decode(secret.split("_", 1)[1])
        signed = b"abc-1." + headers["webhook-timestamp"].encode() + b"." + body
        expected = base64.b64encode(hmac.HMAC(key, signed, hashlib.sha256).digest())
        assert signature.encode() == b"v1," + expected


def test_without_a_secret_there_is_no_signature() -> None:
    assert signed_headers("abc-1", b"{}", (), 5.9) == {"webhook-id": "abc-1", "webhook-timestamp": "5"}


def test_the_example_of_the_specification_has_its_signature() -> None:
    """The example of the reference libraries (`tests` of standard-webhooks/libraries)."""
    secrets = parse_secrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', secrets, 1614265330)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "text", ["", "hunter2", "whsec_hunter2!", "whsec_aHVudGVyMg==", "whsec_" + "A" * 100, f"{SECRET} {SECRET} {SECRET}"]
)
def test_what_is_no_secret_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="openssl rand -base64 32") as refused:
        parse_secrets(text)
    assert "hunter2" not in str(refused.value)
    assert "AAAA" not in str(refused.value)


def test_an_event_is_the_alert_in_an_envelope() -> None:
    document = alert_document(id="f" * 32, revision=3, state="resolved", time="2026-01-31T12:00:00.000Z")
    payload = json.dumps(document).encode()
    alert = read_alert(payload)
    assert alert is not None
    event = json.loads(write_event(alert, payload, "host-1"))
    assert event.pop("data") == document
    assert event == {
        "specversion": "1.0",
        "id": "f" * 32 + "-3",
        "source": "/cfmon/host-1",
        "type": "cfmon.alarm.resolved",
        "subject": "ada/watch",
        "time": "2026-01-31T12:00:00.000Z",
        "datacontenttype": "application/json",
        "text": document["summary"],
    }


def test_an_alert_without_a_time_gives_an_event_without_one() -> None:
    payload = json.dumps(alert_document(time=None)).encode()
    alert = read_alert(payload)
    assert alert is not None
    assert "time" not in json.loads(write_event(alert, payload, "host-1"))


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"state":"offline"}', b"\xff"])
def test_what_is_no_alert_gives_no_event(payload: bytes) -> None:
    assert read_alert(payload) is None


@given(failures=st.integers(1, 2000), chance=st.floats(0, 1, exclude_max=True))
def test_the_pause_doubles_from_a_second_to_five_minutes(failures: int, chance: float) -> None:
    pause = pause_after(failures, chance=chance)
    whole = min(2.0 ** min(failures - 1, 60), LONGEST)
    assert whole / 2 <= pause <= whole
    assert pause_after(failures, chance=0.0) == whole


def test_a_requested_pause_is_kept_but_not_without_limit() -> None:
    assert pause_after(1, chance=0.5, requested=100.0) == 100.0
    assert pause_after(20, chance=0.0, requested=100.0) == LONGEST
    assert pause_after(1, chance=0.5, requested=1e9) == LONGEST_REQUESTED


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0.0),
        ("0", 0.0),
        ("90", 90.0),
        ("9" * 5000, 999_999_999.0),
        ("-5", 0.0),
        ("soon", 0.0),
        ("\u0665", 0.0),
        ("Thu, 01 Jan 1970 00:20:00 GMT", 200.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("Thu, 99 Jan 1970 00:00:10 GMT", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float) -> None:
    assert parse_retry_after(header, 1000.0) == seconds
