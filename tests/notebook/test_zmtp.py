from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("zmq", reason="ZeroMQ's own subscriber")

import zmq

from necropsy.notebook.zmtp import Peer, Publisher, frame


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as context:
        yield context


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_zeromq_subscribes_and_receives(
    context: zmq.Context[zmq.Socket[bytes]], transport: str, tmp_path: Path
) -> None:
    ip, port = ("127.0.0.1", free_port()) if transport == "tcp" else (str(tmp_path / "k"), 1)
    publisher = Publisher(transport, ip, port)
    subscriber = context.socket(zmq.SUB)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"a")
    subscriber.connect(f"tcp://{ip}:{port}" if transport == "tcp" else f"ipc://{ip}-{port}")
    while not publisher.subscribers(b"abc"):
        publisher.serve(0.02)
    assert not publisher.subscribers(b"b")
    parts = [b"abc", b"x" * 70000, b"", b"y" * 255]
    publisher.publish(parts, publisher.subscribers(b"abc"))
    publisher.close()
    assert subscriber.recv_multipart() == parts
    subscriber.close(0)
    assert not (tmp_path / "k-1").exists()


def test_an_address_in_use_is_an_error_and_a_free_one_can_be_had_again() -> None:
    port = free_port()
    first = Publisher("tcp", "127.0.0.1", port)
    with pytest.raises(OSError, match="in use"):
        Publisher("tcp", "127.0.0.1", port)
    first.close()
    Publisher("tcp", "127.0.0.1", port).close()


def test_a_subscriber_that_goes_is_forgotten() -> None:
    port = free_port()
    publisher = Publisher("tcp", "127.0.0.1", port)
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(b"GET / HTTP/1.1\r\n\r\n".ljust(64))
        one.setblocking(False)
        ended = False
        while not ended:
            publisher.serve(0.05)
            with suppress(BlockingIOError):
                ended = not one.recv(100)
    publisher.close()


@given(st.lists(st.binary(max_size=40)), st.booleans())
def test_whatever_a_peer_sends_is_no_error(chunks: list[bytes], greets: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = Peer(ours, greeted=greets)
        for chunk in chunks:
            if not peer.take(chunk):
                break


@given(st.binary(max_size=400), st.integers(1, 50))
def test_a_subscription_may_come_in_pieces(topic: bytes, size: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = Peer(ours, greeted=True)
        for body, flags in ((b"\x01" + topic, 0), (b"\x09SUBSCRIBE" + topic, 4)):
            data = frame(body, flags)
            for place in range(0, len(data), size):
                assert peer.take(data[place : place + size])
            assert peer.topics == {topic}
            assert peer.take(frame(b"\x00" + topic))
            assert peer.topics == set()


def test_a_wildcard_is_every_address() -> None:
    port = free_port()
    publisher = Publisher("tcp", "*", port)
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.setblocking(False)
        greeting = b""
        while not greeting:
            publisher.serve(0.05)
            with suppress(BlockingIOError):
                greeting = one.recv(10)
        assert greeting.startswith(b"\xff")
    publisher.close()
