"""Who may ask over HTTP: by token, by name, reading only, and not for ever; against the server as it runs."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from monitor.errors import ConfigError
from monitor.sidecar.config.settings import HttpConfig
from monitor.sidecar.loopback import is_loopback
from monitor.sidecar.web import server as server_module
from monitor.sidecar.web.guard import read_token
from monitor.sidecar.web.server import HttpServer
from tests.servers import PATIENCE, prometheus, wait_until

TOKEN = "0123456789abcdef0123456789abcdef"
DATA = ["/metrics", "/api/status", "/api/agents", "/evidence/abc", "/evidence/abc.sig"]
PROBES = ["/healthz", "/readyz"]


async def answer(_request: Request) -> Response:
    return PlainTextResponse("cfmon_metric 1\n", media_type="text/plain; version=0.0.4")


APP = Starlette(routes=[Route(path, answer) for path in [*DATA, *PROBES]])


@contextmanager
def serving(**settings: object) -> Iterator[httpx.Client]:
    server = HttpServer(APP, HttpConfig.model_validate({"listen": "127.0.0.1:0", **settings}))
    server.start()
    try:
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
            yield client
    finally:
        server.stop()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# ---- the token ----


def test_without_the_token_only_probes_are_answered(token_file: Path) -> None:
    with serving(token_file=token_file) as client:
        for path in PROBES:
            assert client.get(path).status_code == 200
        for path in [*DATA, "/unknown"]:
            refused = client.get(path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="cfmon"')
        for path in DATA:
            assert client.get(path, headers=bearer(TOKEN)).status_code == 200
            assert client.head(path, headers=bearer(TOKEN)).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "Bearer",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}0",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN}, Bearer {TOKEN}",
        "Bearer \u00e9",
    ],
)
def test_what_is_nearly_the_token_is_refused(wrong: str, token_file: Path) -> None:
    with serving(token_file=token_file) as client:
        shown = httpx.Headers([(b"authorization", wrong.encode("latin-1"))])
        assert client.get("/metrics", headers=shown).status_code == 401


def test_two_authorizations_are_none(token_file: Path) -> None:
    with serving(token_file=token_file) as client:
        twice = httpx.Headers([("authorization", f"Bearer {TOKEN}")] * 2)
        assert client.get("/metrics", headers=twice).status_code == 401


def test_a_token_that_is_exchanged_counts_at_once_and_one_that_is_gone_lets_nobody_in(
    token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(token_file=token_file) as client:
        token_file.write_text(TOKEN[::-1])
        assert client.get("/metrics", headers=bearer(TOKEN)).status_code == 401
        assert client.get("/metrics", headers=bearer(TOKEN[::-1])).status_code == 200
        token_file.unlink()
        assert client.get("/metrics", headers=bearer(TOKEN[::-1])).status_code == 401
        assert client.get("/healthz").status_code == 200
    assert "every request is refused: http.token_file" in caplog.text
    assert TOKEN not in caplog.text


def test_a_token_file_that_is_missing_is_one_line_of_log_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(token_file=tmp_path / "absent") as client:
        for _ in range(50):
            assert client.get("/metrics", headers=bearer(TOKEN)).status_code == 401
    assert 1 <= sum(record.levelname == "WARNING" for record in caplog.records) < 10, "however slow this machine is"


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"short", b"with spaces in it all", b"two\nlines of some text", b"\xff" * 20]
)
def test_what_is_no_token_is_an_error_that_does_not_repeat_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^http\.token_file: ") as raised:
        read_token(file)
    assert not content.strip() or content.decode("latin-1").strip() not in str(raised.value)


def test_prometheus_scrapes_with_the_token_from_a_file(tmp_path: Path, token_file: Path) -> None:
    with (
        serving(token_file=token_file) as client,
        prometheus(
            tmp_path / "prometheus",
            [urlsplit(str(client.base_url)).netloc],
            job_settings={"authorization": {"credentials_file": str(token_file)}},
        ) as server,
    ):
        wait_until(lambda: server.query("cfmon_metric == 1"), "Prometheus reads the metric")


# ---- names ----


@pytest.mark.parametrize("host", ["localhost", "LocalHost:1", "127.0.0.1", "127.9.9.9:80", "[::1]:9108"])
def test_on_loopback_loopback_names_are_answered(host: str) -> None:
    with serving() as client:
        assert client.get("/metrics", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("attacker.example", "localhost.attacker.example", "127.0.0.1.attacker.example", "10.0.0.1:9108", "", "[::2]"),
        *("localhost:80@attacker.example", "[::1]@attacker.example", "[::1]attacker.example", "localhost:attacker"),
        *("localhost:", "localhost,attacker.example", "localhost/", "user@localhost", "[::1"),
    ],
)
def test_a_page_that_has_its_name_resolved_to_loopback_reads_nothing(host: str, token_file: Path) -> None:
    foreign = {"Host": host}
    with serving() as client:
        assert client.get("/metrics", headers=foreign).status_code == 421
        assert client.get("/healthz", headers=foreign).status_code == 200, "probes ask by the pod's address"
    with serving(hosts=["monitor.example.org"]) as client:
        assert client.get("/metrics", headers=foreign).status_code == 421
        assert client.get("/metrics", headers={"Host": "Monitor.example.org:443"}).status_code == 200
    with serving(token_file=token_file) as client:  # the page does not know the token
        assert client.get("/metrics", headers=foreign).status_code == 401
        assert client.get("/metrics", headers={**foreign, **bearer(TOKEN)}).status_code == 200


def test_beyond_loopback_names_are_not_looked_at() -> None:
    with serving(listen="0.0.0.0:0") as client:
        url = f"http://127.0.0.1:{client.base_url.port}/metrics"
        assert httpx.get(url, headers={"Host": "10.1.2.3:9108"}, timeout=PATIENCE).status_code == 200


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "2130706433"]))


# ---- reading only ----


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"])
def test_every_method_but_get_and_head_is_refused_everywhere(method: str, token_file: Path) -> None:
    with serving() as client:
        port = client.base_url.port
        for path in [*DATA, *PROBES, "/", "/unknown"]:
            assert raw(port, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").startswith(
                b"HTTP/1.1 4"
            )
            if method.isupper():
                assert client.request(method, path).status_code == 405
    with serving(token_file=token_file) as client:
        assert client.request("POST", "/metrics").status_code == 405


# ---- limits ----


def raw(port: int | None, request: str | bytes) -> bytes:
    """What comes back for these bytes, until the server closes."""
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request.encode() if isinstance(request, str) else request)
        return everything(connection)


def everything(connection: socket.socket) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionError):
        while content := connection.recv(65536):
            got += content
    return got


@pytest.mark.parametrize(
    "request_of",
    [
        lambda size: f"GET /{'a' * size} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        lambda size: f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {'a' * size}\r\n\r\n",
        lambda size: "GET /metrics HTTP/1.1\r\n" + "X: a\r\n" * (size // 6),
    ],
)
def test_headers_that_do_not_end_are_refused(request_of: Callable[[int], str]) -> None:
    with serving() as client:
        assert raw(client.base_url.port, request_of(1 << 20)).startswith(b"HTTP/1.1 4")
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("pieces", [1, 7], ids=["in one piece", "in pieces"])
def test_headers_of_16_kib_are_read_and_no_byte_more(pieces: int) -> None:
    with serving() as client:
        assert headed(client, 16384, pieces).startswith(b"HTTP/1.1 200")
        for size in (16385, 17 * 1024, 200_000):
            assert headed(client, size, pieces).startswith(b"HTTP/1.1 4")
        two = request_of_size(1000) + request_of_size(17 * 1024, close=True)
        assert raw(client.base_url.port, two).count(b"HTTP/1.1 200") < 2, "nor behind another request"
        two = request_of_size(1000) + request_of_size(16000, close=True)
        assert raw(client.base_url.port, two).count(b"HTTP/1.1 200") == 2


def request_of_size(size: int, *, close: bool = False) -> bytes:
    """A request whose line and headers have so many bytes, the empty line included."""
    before = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"Connection: close\r\n" * close + b"X: "
    return before + b"a" * (size - len(before) - 4) + b"\r\n\r\n"


def headed(client: httpx.Client, size: int, pieces: int) -> bytes:
    """What a request of so many bytes gets, sent in so many pieces."""
    request = request_of_size(size, close=True)
    step = -(-size // pieces)
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError):
            for at in range(0, size, step):
                connection.sendall(request[at : at + step])
        return everything(connection)


def test_slow_clients_are_closed_and_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PATIENCE", 0.3)
    with serving() as client, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", client.base_url.port)
        slow = [stack.enter_context(socket.create_connection(address, timeout=PATIENCE)) for _ in range(300)]
        for connection in slow:
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: local")

        def answered() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return client.get("/healthz").status_code == 200
            return False

        wait_until(answered, "a probe is answered")
        for connection in slow:
            everything(connection)  # returns: each was closed


def test_a_probe_is_heard_at_once_however_many_connections_are_held_open() -> None:
    with serving() as client, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", client.base_url.port)
        held = [stack.enter_context(socket.create_connection(address, timeout=PATIENCE)) for _ in range(300)]
        assert client.get("/healthz").status_code == 200
        assert held[0].recv(1) == b""  # the oldest made room


def test_a_busy_connection_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PATIENCE", 0.2)
    with serving() as client:
        peers = set()
        for _ in range(50):
            answered = client.get("/metrics")
            peers.add(answered.extensions["network_stream"].get_extra_info("client_addr"))
        assert len(peers) < 50, "not closed after each"


# ---- what is no request ----


CHUNKED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
BAD_REQUESTS = {
    "a chunk of no size": CHUNKED + b"zz\r\n",
    "a chunk that does not end": CHUNKED + b"1\r\nabc",
    "trailers that are none": CHUNKED + b"0\r\n:\r\n\r\n",
    "refused, with a bad body": CHUNKED.replace(b"GET", b"POST") + b"zz\r\n",
    "no HTTP after a request": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n\x00\x01\x02\r\n\r\n",
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "an upgrade": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
}


@pytest.mark.parametrize("sent", ["at once", "after the answer"])
@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_what_is_no_request_is_one_line_of_log_a_minute(
    case: str, sent: str, token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head, end, body = BAD_REQUESTS[case].partition(b"\r\n\r\n")
    with serving(token_file=token_file) as client:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=PATIENCE) as connection:
                with contextlib.suppress(ConnectionError):
                    connection.sendall(head + end + (body if sent == "at once" else b""))
                    if sent == "after the answer":
                        assert connection.recv(65536).startswith(b"HTTP/1.1 4")
                        connection.sendall(body)
                    connection.shutdown(socket.SHUT_WR)
                everything(connection)
        assert client.get("/healthz").status_code == 200
    assert "Traceback" not in caplog.text
    assert len(caplog.records) < 10, "of two kinds at most, however slow this machine is"
