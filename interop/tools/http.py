"""A request to the HTTP API of a broker."""

from __future__ import annotations

import json
import urllib.request


def ask(url: str, method: str, path: str, body: object = None) -> bytes:
    """Send a request as guest. Returns the body of the answer. Raises: OSError."""
    request = urllib.request.Request(f"{url}/api/{path}", method=method)
    request.add_header("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
    if body is not None:
        request.add_header("content-type", "application/json")
        request.data = json.dumps(body).encode()
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())
