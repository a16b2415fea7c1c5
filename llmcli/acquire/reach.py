"""Whether a server answers at all, found out in a few seconds. Must not know what it serves.

A library that retries politely turns a dead network into minutes; asking first keeps it short.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from llmcli.checkpoint.escape import printable

SECONDS = 3.0
_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080, "socks4": 1080}


def unreachable(urls: Sequence[str], *, proxy: str | None = None) -> str | None:
    """Why none of `urls` can be reached; None as soon as one of them can.

    The environment's proxies hold; `proxy` is one more that a tool's own settings name.
    Only the connection is tried, within SECONDS for all of them together.
    """
    answers: dict[str, str | None] = {}
    changed = threading.Condition()

    def ask(url: str) -> None:
        answer = _connect(url, proxy)
        with changed:
            answers[url] = answer
            changed.notify()

    # Daemon threads: a name look-up cannot be interrupted, and must not hold up the exit.
    for url in urls:
        threading.Thread(target=ask, args=(url,), daemon=True).start()
    with changed:
        changed.wait_for(lambda: None in answers.values() or len(answers) == len(urls), SECONDS)
        if None in answers.values():
            return None
        silent = f"no answer within {SECONDS:g} s"
        reasons = [answers.get(url) or f"{_host(url)}: {silent}" for url in urls]
    return "; ".join(dict.fromkeys(reasons))


def _connect(url: str, proxy: str | None) -> str | None:
    try:
        split = urlsplit(url)
        host, port = _address(split, proxy)
    except ValueError:
        return f"{printable(url)} is not an address"
    try:
        socket.create_connection((host, port), timeout=SECONDS).close()
    except OSError as error:
        return f"{printable(host)}:{port}: {printable(str(error.strerror or error))}"
    return None


def _address(split: SplitResult, proxy: str | None) -> tuple[str, int]:
    host = split.hostname or ""
    if not proxy and not proxy_bypass(host):
        proxies = getproxies()
        proxy = proxies.get(split.scheme) or proxies.get("all")
    if proxy:
        split = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return split.hostname or "", split.port or _PORTS.get(split.scheme, 443)


def _host(url: str) -> str:
    return printable(urlsplit(url).hostname or url)
