"""A client of server-sent events of the console."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from api_client import ApiClient, basic


@contextmanager
def streaming(
    api: ApiClient, query: str = "", user: str | None = "guest", place: str = "events", **headers: str
) -> Iterator[Iterator[Any]]:
    """The events of a stream of the API: name, data."""
    connection = http.client.HTTPConnection(*api.address, timeout=30)
    login = {} if user is None else {"authorization": basic(user, user)}
    sent = {**login, "accept": "text/event-stream", **headers}
    connection.request("GET", f"/api/leveret/{place}{query}", headers=sent)
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream")
    try:
        yield _events(answer)
    finally:
        connection.close()
        answer.close()


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    fields: dict[str, str] = {}
    for line in answer:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        else:
            yield fields["event"], json.loads(fields["data"])
            fields = {}


def until(events: Iterator[Any], wanted: str) -> Any:
    """The data of the next event of this name."""
    return next(data for name, data in events if name == wanted)
