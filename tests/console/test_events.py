"""Events over the API: as a list and as a stream. Source: management page 16."""

import pytest
from api_client import ApiClient
from sent_events import streaming, until

from leveret.operator import event_log
from leveret.testing import RunningBroker


def test_list(api: ApiClient) -> None:
    """Only what the query asks for, after the first look; bad queries are refused."""
    following = api.get("leveret/events")["next"]
    api.ask("PUT", "queues/%2F/seen", {})
    api.ask("PUT", "queues/%2F/other", {})
    found = api.get(f"leveret/events?since={following}&kind=declared&queue=seen&vhost=%2F")
    assert [(row["subject"], row["kind"]) for row in found["items"]] == [("seen", "declared")]
    for query in ("since=x", "since=-1", "kind=nope", "count=-2", "message=1.5"):
        assert api.ask("GET", f"leveret/events?{query}").status == 400


def test_stream(api: ApiClient) -> None:
    """Totals at once, then what happens from then on, and behind a number what happened before."""
    with streaming(api, "?kind=declared") as events:
        totals = until(events, "totals")
        assert totals["alarm"] is None and "queue_totals" in totals
        assert api.ask("PUT", "queues/%2F/streamed", {}).status == 201
        found = until(events, "event")
        assert (found["kind"], found["subject"]) == ("declared", "streamed")
    with streaming(api, "?kind=declared", **{"last-event-id": str(found["number"] - 1)}) as events:
        assert until(events, "event") == found


@pytest.mark.parametrize("place", ["events", "log"])
@pytest.mark.parametrize("last", ["\u00b2", "9" * 5000, "-1", "x"], ids=["no ASCII", "long", "below 0", "no number"])
def test_a_last_event_that_is_none_begins_anew(api: ApiClient, place: str, last: str) -> None:
    """The answer is no 500, and the log has no traceback."""
    with streaming(api, place=place, **{"last-event-id": last}):
        pass


def test_who_may_not_look_any_more_is_told(api: ApiClient) -> None:
    """A user who is deleted: the stream ends with a word."""
    api.ask("PUT", "users/looker", {"password": "looker", "tags": "monitoring"})
    with streaming(api, user="looker") as events:
        until(events, "totals")
        assert api.ask("DELETE", "users/looker").status == 204
        assert until(events, "cut") == {"reason": "the login is no longer valid"}
        assert list(events) == []


@pytest.mark.parametrize("place", ["events", "log"])
def test_a_stream_ends_with_the_password(api: ApiClient, place: str) -> None:
    """Other tags that leave the user a monitor do not end it; another password does."""
    api.ask("PUT", "users/looker", {"password": "looker", "tags": "monitoring"})
    (user,) = [one for one in api.get("users") if one["name"] == "looker"]
    same = {key: user[key] for key in ("password_hash", "hashing_algorithm")}
    with streaming(api, place=place, user="looker") as events:
        assert api.ask("PUT", "users/looker", {**same, "tags": "administrator"}).status == 204
        if place == "events":
            for _ in range(2):
                until(events, "totals")
        assert api.ask("PUT", "users/looker", {"password": "another", "tags": "monitoring"}).status == 204
        assert until(events, "cut") == {"reason": "the login is no longer valid"}
    api.ask("DELETE", "users/looker")


def test_who_is_too_slow_is_cut_with_a_word(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """More happened in one turn than is kept."""
    with streaming(api) as events:
        until(events, "totals")
        monkeypatch.setattr(event_log, "EVENTS_MAX", 3)
        queues = [{"name": f"many{at}", "vhost": "/", "durable": True, "auto_delete": False} for at in range(25)]
        assert api.ask("POST", "definitions", {"queues": [{**one, "arguments": {}} for one in queues]}).status == 204
        assert until(events, "cut")["reason"].startswith("read too slowly: ")
        assert list(events) == []


def test_who_may(api: ApiClient, broker: RunningBroker) -> None:
    """Monitors only; a stream is taken here and nowhere else."""
    api.ask("PUT", "users/manager", {"password": "manager", "tags": "management"})
    assert api.ask("GET", "leveret/events", user="manager").status == 401
    assert api.ask("GET", "leveret/blocked", headers={"accept": "text/event-stream"}).status == 406
