"""One POST over HTTP that ends in bounded time, whatever the other side does, and goes to no other host.

Proxies are taken from the environment (HTTPS_PROXY, NO_PROXY), certificates from the system.
"""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from necropsy.reports.terminal import clean

_ANSWER = 64 << 10
"""Bytes of an answer that are read."""
_REDIRECTS = 3
_SAME_METHOD = frozenset({307, 308})
"""Redirects after which a POST stays one."""


@dataclass(frozen=True)
class Answer:
    """What the receiver said."""

    status: int
    reason: str
    body: bytes
    retry_after: str | None


class NotSentError(Exception):
    """No answer; the text says why, in a few words and without credentials."""


def post(url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, whole_s: float) -> Answer:
    """Send ``body``. ``timeout_s``: for each step; ``whole_s``: for sending and the answer together.

    Raises ``NotSentError``.
    """
    for _ in range(_REDIRECTS + 1):
        answer, location = _once(url, headers, body, timeout_s, whole_s)
        if not 300 <= answer.status < 400:
            return answer
        url = _followed(url, location, answer.status)
    raise NotSentError(f"more than {_REDIRECTS} redirects")


def _followed(url: str, location: str | None, status: int) -> str:
    """Where a redirect leads, if it may be followed: on the same host, without giving up TLS."""
    try:
        old, new = urlsplit(url), urlsplit(urljoin(url, location or ""))
        same = (new.scheme, new.hostname, new.port) == (old.scheme, old.hostname, old.port)
        secured = (old.scheme, new.scheme) == ("http", "https") and new.hostname == old.hostname
    except ValueError:
        raise NotSentError(f"it redirects ({status}) to an address that is not valid") from None
    if location is None or new.hostname is None:
        raise NotSentError(f"it redirects ({status}) without saying where to")
    if not (same or secured):
        raise NotSentError(f"it redirects to another address ({clean(new.hostname[:100])}), refused")
    if status not in _SAME_METHOD:
        raise NotSentError(f"it answers with a redirect ({status}) that does not keep the request: use the new address")
    return new.geturl()


def _once(
    url: str, headers: Mapping[str, str], body: bytes, timeout_s: float, whole_s: float
) -> tuple[Answer, str | None]:
    late = threading.Event()
    connection: http.client.HTTPConnection | None = None
    watchdog: threading.Timer | None = None
    try:
        connection, target, more = _connection(url, timeout_s)
        connection.connect()
        held = connection.sock

        def cut() -> None:
            late.set()
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

        watchdog = threading.Timer(whole_s, cut)
        watchdog.daemon = True
        watchdog.start()
        connection.request("POST", target, body, {**headers, **more, "Connection": "close"})
        response = connection.getresponse()
        said = response.read(_ANSWER)
        answer = Answer(response.status, clean(response.reason or "")[:100], said, response.getheader("Retry-After"))
        return answer, response.getheader("Location")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotSentError(f"no answer within {whole_s:g} s" if late.is_set() else _reason(error, timeout_s)) from error
    finally:
        if watchdog is not None:
            watchdog.cancel()
        if connection is not None:
            connection.close()


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {clean(error.verify_message)}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {clean(error.reason or 'unknown')}"
    if isinstance(error, http.client.RemoteDisconnected | ConnectionError):
        refused = isinstance(error, ConnectionRefusedError)
        return "it refuses connections" if refused else "it closed the connection without an answer"
    if isinstance(error, http.client.HTTPException):
        return f"its answer is not HTTP ({type(error).__name__})"
    if isinstance(error, OSError):
        return clean(error.strerror or type(error).__name__)
    return "a header or the address holds a character that HTTP does not allow"


def _connection(url: str, timeout_s: float) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    """The connection, the request target, and the headers for a proxy."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    secure = parts.scheme == "https"
    proxy = _proxy(parts.scheme, host)
    if proxy is None:
        if secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context), path, {}
        return http.client.HTTPConnection(host, port, timeout=timeout_s), path, {}
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    login = {}
    if via.username:
        pair = f"{unquote(via.username)}:{unquote(via.password or '')}"
        login = {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
    if secure:
        context = ssl.create_default_context()
        through = http.client.HTTPSConnection(via.hostname or "", via.port or 80, timeout=timeout_s, context=context)
        through.set_tunnel(host, port or 443, login)
        return through, path, {}
    return http.client.HTTPConnection(via.hostname or "", via.port or 80, timeout=timeout_s), url, login


def _proxy(scheme: str, host: str) -> str | None:
    try:
        return None if proxy_bypass(host) else getproxies().get(scheme)
    except OSError:
        return None
