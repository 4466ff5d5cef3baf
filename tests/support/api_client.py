"""A client of the HTTP API for tests: one connection a request, nothing followed, nothing decoded but JSON."""

import base64
import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(slots=True, frozen=True)
class Response:
    """Status, headers by lower-case names, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """What the body says; None: there is none."""
        return json.loads(self.body) if self.body else None

    @property
    def reason(self) -> Any:
        """Of a refusal."""
        return self.json["reason"] if self.body else None


def basic(user: str, password: str) -> str:
    """The header of a login."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class ApiClient:
    """Asks one console, as `guest` unless told otherwise."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.address = (str(parts.hostname), parts.port or 80)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = "guest",
        password: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Response:
        """`path`: behind /api/, or whole if it begins with a slash. `body`: sent as JSON unless it is octets."""
        sent = {"content-type": "application/json"} if body is not None and not isinstance(body, bytes) else {}
        if user is not None:
            sent["authorization"] = basic(user, user if password is None else password)
        sent |= headers or {}
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        try:
            connection.request(method, path if path.startswith("/") else f"/api/{path}", raw, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Any:
        """What a GET that must work answers."""
        answer = self.ask("GET", path, **options)
        assert answer.status == 200, (answer.status, answer.body)
        return answer.json
