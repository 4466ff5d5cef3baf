"""What stands before an etcd and may answer in its place: errors, garbage, redirects, one octet after the other."""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: How it answers while it is faulty.
FAULTS = ("error", "garbage", "another JSON", "redirect", "trickle", "cut short", "nothing")
#: Seconds between two octets of an answer that trickles.
OCTET_S = 0.2
#: Seconds for which a watch says nothing, and is closed then.
WATCH_S = 0.5


class FaultyEtcd:
    """`endpoint`: where nodes reach it. `fault`: of all answers; None: those of the etcd behind it, but for watches."""

    def __init__(self, endpoint: str) -> None:
        self.fault: str | None = None
        self.asked = 0
        self._is_over = threading.Event()
        owner, host = self, endpoint.rpartition("/")[2]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                owner.asked += 1
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.path == "/v3/watch":
                    owner._is_over.wait(WATCH_S)  # then nodes read the keys again
                    self.close_connection = True
                    return
                if owner.fault is not None:
                    owner.answer_wrongly(self, owner.fault)
                    return
                there = http.client.HTTPConnection(host, timeout=5)
                try:
                    there.request(self.command, self.path, body, {"content-type": "application/json"})
                    answer = there.getresponse()
                    octets = answer.read()
                except OSError:
                    self.close_connection = True
                    return
                finally:
                    there.close()
                self.say(answer.status, octets)

            do_GET = do_POST = _serve

            def say(self, status: int, octets: bytes, size: int | None = None, **headers: str) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(octets) if size is None else size))
                self.end_headers()
                self.wfile.write(octets)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer_wrongly(self, handler: object, fault: str) -> None:
        """Answer a request as `fault` says."""
        say, out = handler.say, handler.wfile  # type: ignore[attr-defined]
        handler.close_connection = True  # type: ignore[attr-defined]
        if fault == "error":
            say(500, b'{"error":"etcdserver: internal","code":13}')
        elif fault == "garbage":
            say(200, b"<html>" + bytes(range(256)))
        elif fault == "another JSON":
            say(200, b'[{"header":7}]')
        elif fault == "redirect":
            say(302, b"", location="http://127.0.0.1:1/elsewhere")
        elif fault == "cut short":
            say(200, b'{"header"', size=1000)
        elif fault == "trickle":
            out.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            for _ in range(1000):
                out.write(b" ")
                if self._is_over.wait(OCTET_S):
                    return
        else:
            self._is_over.wait(30)

    def close(self) -> None:
        """Serve no more."""
        self._is_over.set()
        self._server.shutdown()
        self._server.server_close()
