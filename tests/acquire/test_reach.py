"""Asking whether anybody is there: quickly, through proxies, one answer being enough."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest

from llmcli.acquire import reach
from llmcli.acquire.reach import unreachable


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def there() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def dead() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_one_that_answers_is_enough(there: str, dead: str):
    assert unreachable([there]) is None
    assert unreachable([dead, there]) is None
    assert "refused" in (unreachable([dead]) or "")


def test_silence_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reach, "SECONDS", 0.3)

    def silent(*args: object, **kwargs: object) -> None:
        time.sleep(6)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", silent)
    begun = time.monotonic()
    assert unreachable(["https://x\x1b.example/simple"]) == "x\\x1b.example: no answer within 0.3 s"
    assert time.monotonic() - begun < 4


def test_proxies_hold(there: str, dead: str, monkeypatch: pytest.MonkeyPatch):
    far = "http://nowhere.invalid"
    assert unreachable([far], proxy=there) is None
    monkeypatch.setenv("http_proxy", there)
    assert unreachable([far]) is None
    monkeypatch.setenv("http_proxy", dead)
    assert unreachable([far])
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert unreachable([there]) is None


def test_not_an_address():
    assert "not an address" in (unreachable(["http://[bad"]) or "")
    assert "not an address" in (unreachable(["http://x:99999999/"]) or "")
