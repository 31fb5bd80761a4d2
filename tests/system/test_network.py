"""The probe gives up within seconds, whatever the network does."""

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ntl.system import network
from ntl.system.network import unreachable


@pytest.mark.parametrize("status", [200, 404, 405])
def test_a_host_that_answers_anything_is_reachable(status: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert unreachable(f"http://127.0.0.1:{server.server_port}") == ""


def test_a_host_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "PROBE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        assert unreachable(f"http://127.0.0.1:{silent.getsockname()[1]}") != ""
        assert time.monotonic() - started < 3


def test_no_host_and_no_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert "refused" in unreachable(f"http://127.0.0.1:{port}")
    assert unreachable("not a url") != ""
