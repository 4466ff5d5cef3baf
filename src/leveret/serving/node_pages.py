"""Metrics and health of a node that does not lead, over HTTP: a few figures that need no broker and no login."""

import os
import time
from collections.abc import Callable
from http import HTTPStatus

import trio

from ..cluster.agreement.states import State
from ..cluster.node import Node
from .allocator import resident_octets
from .descriptors import open_descriptors
from .gate import Guest
from .node_checks import PREFIX, NodeChecks

#: Seconds for a request and its answer, and octets of a request's head.
ANSWER_S, HEAD_MAX = 5.0, 16 * 1024
_METRICS, _LIVE, _READY = "/metrics", "/health/live", "/health/ready"
_READY_STATES = frozenset({State.FOLLOWING, State.IN_SYNC, State.DRAINED})


class NodePages:
    """Answers one request a connection. `is_open`: metrics may be read from anywhere."""

    def __init__(self, node: Node, is_open: Callable[[], bool], checks: NodeChecks) -> None:
        self._node = node
        self._checks = checks
        self._is_open = is_open

    async def answer(self, guest: Guest) -> None:
        """Read a request and answer it. Raises: OSError, trio.BrokenResourceError."""
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(guest.socket))
        with trio.move_on_after(ANSWER_S):
            head = b""
            while b"\r\n\r\n" not in head and len(head) < HEAD_MAX:
                data = await stream.receive_some(HEAD_MAX)
                if not data:
                    return
                head += data
            method, _, rest = head.partition(b" ")
            path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
            status, body = self.page(method.decode("latin-1"), path, is_loopback=_is_loopback(guest.address))
            length = f"content-length: {len(body)}\r\nconnection: close\r\n"
            media = "application/json" if path.startswith(PREFIX) else "text/plain; version=0.0.4; charset=utf-8"
            kind = f"content-type: {media}\r\n"
            await stream.send_all(f"HTTP/1.1 {status}\r\n{kind}{length}\r\n".encode())
            if method != b"HEAD":
                await stream.send_all(body)
            await stream.send_eof()

    def page(self, method: str, path: str, *, is_loopback: bool) -> tuple[str, bytes]:
        """Status and body of an answer."""
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", b""
        if path.startswith(PREFIX):
            status, body = self._checks.answer(path)
            return f"{status} {HTTPStatus(status).phrase}", body
        if path == _LIVE:
            return "200 OK", b"alive\n"
        if path == _READY:
            is_ready = self._node.agreement.state in _READY_STATES
            return ("200 OK", b"ready\n") if is_ready else ("503 Service Unavailable", b"no node leads\n")
        if path != _METRICS:
            return "404 Not Found", b""
        if not is_loopback and not self._is_open():
            return "401 Unauthorized", b""
        return "200 OK", self.metrics().encode()

    def metrics(self) -> str:
        """The figures, as Prometheus reads them."""
        node = self._node
        key = node.key()
        figures = [
            ("leveret_cluster_term", "gauge", key.term),
            ("leveret_cluster_journal_end", "gauge", key.end),
            ("leveret_cluster_agreed", "gauge", node.agreed_lsn),
            ("leveret_cluster_leads", "gauge", 0),
            ("process_resident_memory_bytes", "gauge", resident_octets()),
            ("process_open_fds", "gauge", open_descriptors()),
            ("process_cpu_seconds_total", "counter", round(time.process_time(), 3)),
        ]
        lines = [f"# TYPE {name} {kind}\n{name} {value}\n" for name, kind, value in figures]
        lines.append("# TYPE leveret_cluster_state gauge\n")
        for state in State:
            is_on = int(state is node.agreement.state)
            lines.append(f'leveret_cluster_state{{node="{key.name}",state="{state.name.lower()}"}} {is_on}\n')
        lines.append(f'# TYPE leveret_process gauge\nleveret_process{{pid="{os.getpid()}"}} 1\n')
        return "".join(lines)


def _is_loopback(address: object) -> bool:
    return not isinstance(address, tuple) or str(address[0]).startswith(("127.", "::1", "::ffff:127."))
