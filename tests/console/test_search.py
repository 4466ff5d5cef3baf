"""Where a message is: browsing with filters, by state, and searching all queues. Source: management page 16."""

import errno
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from api_client import ApiClient
from journal_workload import PATH, Driver
from pika.adapters.blocking_connection import BlockingChannel
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.journal import Journal, JournalOptions, JournalReader
from leveret.journal.recovery.stories import JournalStories
from leveret.operator import browsing
from leveret.operator import search as search_module
from leveret.testing import RunningBroker, start_broker


@pytest.fixture
def channel(broker: RunningBroker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        one = connection.channel()
        one.confirm_delivery()
        yield one


def publish(channel: BlockingChannel, queue: str, body: bytes = b"x", **properties: Any) -> None:
    channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def browse(api: ApiClient, queue: str, **given: Any) -> Any:
    answer = api.ask("POST", f"leveret/queues/%2F/{queue}/browse", given)
    assert answer.status == 200, answer.body
    return answer.json


def search(api: ApiClient, user: str = "guest", **given: Any) -> Any:
    answer = api.ask("POST", "leveret/search/messages", given, user=user)
    assert answer.status == 200, answer.body
    return answer.json


def bodies(found: Any) -> list[str]:
    return [row["payload"] for row in found["items"]]


def declare(api: ApiClient, *queues: str, **arguments: object) -> None:
    for queue in queues:
        assert api.ask("PUT", f"queues/%2F/{queue}", {"arguments": arguments}).status == 201


@pytest.mark.parametrize(
    "given, found",
    [
        ({"header": {"n": 3}}, ["3"]),
        ({"header": {"n": "3", "even": False}}, ["3"]),
        ({"header": {"n": 3, "even": True}}, []),
        ({"header": {"gone": 1}}, []),
        ({"text": "7"}, ["7", "17", "27"]),
        ({"routing_key": "filtered", "text": "19"}, ["19"]),
        ({"routing_key": "other"}, []),
        ({"filter": "n > 27"}, ["28", "29"]),
        ({"text": "7", "filter": "n < 20"}, ["7", "17"]),
    ],
)
def test_filters_of_browsing(api: ApiClient, channel: BlockingChannel, given: dict[str, Any], found: list[str]) -> None:
    """Header = value, key, text, expression; all of what is given counts; the queue is as it was."""
    if api.ask("GET", "queues/%2F/filtered").status == 404:
        declare(api, "filtered")
        for number in range(30):
            publish(channel, "filtered", b"%d" % number, headers={"n": number, "even": number % 2 == 0})
    seen = browse(api, "filtered", **given)
    assert bodies(seen) == found
    assert (seen["looked_at"], seen["next"], seen["total"]) == (30, None, 30)


def test_pages_of_what_a_filter_takes(
    api: ApiClient, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`next` goes on behind the last that was looked at; a page may end before it is full."""
    declare(api, "paged")
    for number in range(300):
        publish(channel, "paged", b"%d" % number, headers={"tens": number // 10})
    first = browse(api, "paged", header={"tens": 1}, count=6)
    rest = browse(api, "paged", header={"tens": 1}, count=6, after=first["next"])
    assert bodies(first) + bodies(rest) == [str(number) for number in range(10, 20)] and rest["next"] is None
    monkeypatch.setattr(browsing, "LOOKED_MAX", 100)
    pages, after = [], 0
    while after is not None:
        page = browse(api, "paged", header={"tens": 25}, after=after)
        pages.append(bodies(page))
        after = page["next"]
    assert pages == [[], [], [str(number) for number in range(250, 260)], []]


def test_what_is_out_has_a_holder(api: ApiClient, channel: BlockingChannel) -> None:
    """Which connection and consumer have it."""
    declare(api, "out")
    publish(channel, "out", message_id="m")
    _, _, body = next(channel.consume("out", inactivity_timeout=30))
    assert body == b"x"
    (row,) = browse(api, "out", state="unacked")["items"]
    assert row["holder"]["connection"].startswith("127.0.0.1:") and row["holder"]["consumer"]
    (row,) = search(api, message_id="m")["items"]
    assert (row["queue"], row["state"], row["holder"]["consumer"] is None) == ("out", "unacked", False)
    channel.cancel()


def test_scheduled_messages_page_by_page(api: ApiClient, channel: BlockingChannel) -> None:
    """Soonest first, however they came; browsed with a filter, listed with their ids."""
    api.ask("PUT", "exchanges/%2F/delays", {"type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}})
    declare(api, "waits")
    api.ask("POST", "bindings/%2F/e/delays/q/waits", {})
    for number in (3, 1, 2, 5, 4):
        headers = {"x-delay": 3_600_000 + number * 60_000, "n": number}
        channel.basic_publish("delays", "k", b"%d" % number, pika.BasicProperties(headers=headers))
    assert bodies(browse(api, "waits", state="scheduled")) == ["1", "2", "3", "4", "5"]
    first = browse(api, "waits", state="scheduled", count=2)
    rest = browse(api, "waits", state="scheduled", count=2, after=first["next"])
    assert bodies(first) + bodies(rest) == ["1", "2", "3", "4"]
    assert first["items"][0]["due_ms"] < first["items"][1]["due_ms"]
    (row,) = browse(api, "waits", state="scheduled", header={"n": 4})["items"]
    page = api.get("leveret/scheduled/%2F/waits?after=3&count=1")
    assert (page["items"][0]["id"], page["next"], page["total"]) == (row["id"], 4, 5)
    assert api.get("leveret/scheduled/%2F/waits?after=4")["next"] is None
    for query in ("after=-1", "count=0", "count=501", "after=x"):
        assert api.ask("GET", f"leveret/scheduled/%2F/waits?{query}").status == 400
    assert api.ask("GET", "leveret/scheduled/%2F/none").status == 404
    (found,) = search(api, header={"n": 4}, queue="waits")["items"]
    assert (found["queue"], found["state"]) == ("waits", "scheduled")


def test_search_through_all_queues(api: ApiClient, channel: BlockingChannel) -> None:
    """By message id, correlation id, header and text; with what was looked at."""
    declare(api, "here", "there")
    publish(channel, "here", b"the needle in the hay", message_id="id-1", correlation_id="c")
    publish(channel, "there", b"more hay", message_id="id-2", correlation_id="c", headers={"order": 5})
    assert [row["queue"] for row in search(api, correlation_id="c")["items"]] == ["here", "there"]
    for given in ({"message_id": "id-2"}, {"header": {"order": 5}}, {"text": "more hay", "vhost": "/"}):
        found = search(api, **given)
        assert [(row["queue"], row["state"]) for row in found["items"]] == [("there", "ready")]
        assert found["stopped"] == "" and found["looked_at"] >= 2 and found["queues"] >= 2
    assert search(api, message_id="id-1", queue="there")["items"] == []
    found = search(api, text="hay", count=1)
    assert (len(found["items"]), found["stopped"]) == (1, "1 messages were found")


def test_a_search_ends_early_and_says_so(
    api: ApiClient, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it has looked at so many messages."""
    declare(api, "long")
    for _ in range(250):
        publish(channel, "long")
    monkeypatch.setattr(search_module, "SEARCHED_MAX", 100)
    found = search(api, message_id="nobody", queue="long")
    assert (found["items"], found["looked_at"], found["stopped"]) == ([], 100, "100 messages were looked at")


def test_the_story_of_a_message_that_is_gone(api: ApiClient, channel: BlockingChannel) -> None:
    """While events are kept, a search tells what happened to it."""
    api.get("leveret/events")
    declare(api, "gone")
    publish(channel, "gone", message_id="story", headers={"order": 7})
    channel.basic_get("gone", auto_ack=True)
    for given in ({"message_id": "story"}, {"header": {"order": 7}, "routing_key": "gone"}):
        found = search(api, **given)
        assert found["items"] == []
        (story,) = found["stories"]
        kinds = [event["kind"] for event in story["events"]]
        assert kinds[:3] == ["published", "enqueued", "delivered"]
    assert search(api, id=story["message"])["stories"][0]["message"] == story["message"]
    assert search(api, message_id="other")["stories"] == []
    assert search(api, text="x", queue="gone")["stories"] == []
    assert search(api, cause="rejected")["stories"] == [], "it has not died"


def test_who_may_search(api: ApiClient, channel: BlockingChannel) -> None:
    """Only queues that the user may read; events are for monitors."""
    declare(api, "mine", "yours")
    for queue in ("mine", "yours"):
        publish(channel, queue, message_id="both")
    api.ask("PUT", "users/finder", {"password": "finder", "tags": "management"})
    api.ask("PUT", "permissions/%2F/finder", {"configure": "", "write": "", "read": "^mine$"})
    api.get("leveret/events")
    found = search(api, user="finder", message_id="both")
    assert [row["queue"] for row in found["items"]] == ["mine"]
    assert found["not_permitted"] >= 1 and found["stories"] == []
    for path in ("scheduled", "leases"):
        assert api.ask("GET", f"leveret/{path}/%2F/yours", user="finder").status == 401


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"message_id": 5},
        {"header": []},
        {"header": "x"},
        {"filter": "a ="},
        {"id": -1},
        {"count": "x", "text": "a"},
        {"text": "a", "queue": "nowhere"},
        {"text": "a", "vhost": "nowhere"},
    ],
)
def test_bad_input(api: ApiClient, given: dict[str, Any]) -> None:
    """400, and a reason."""
    answer = api.ask("POST", "leveret/search/messages", given)
    assert answer.status == 400 and answer.reason


def test_what_is_paged_out_is_found() -> None:
    """Messages beyond what memory holds are read for it, and stay where they are."""
    config = '[limits]\nmemory = "1MiB"\n'
    with start_broker(management=True, config=config) as small:
        api = ApiClient(small.management_url)
        declare(api, "deep")
        with pika.BlockingConnection(pika.URLParameters(small.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(40):
                publish(channel, "deep", b"%d" % number + b"." * 100_000, message_id=f"m{number}")
        assert bodies(browse(api, "deep", text="37.", truncate=2)) == ["37"]
        (row,) = search(api, message_id="m33")["items"]
        assert (row["queue"], row["payload_bytes"], len(row["payload"])) == ("deep", 100_002, 200)


@pytest.mark.parametrize("given", [{"message_id": "kept"}, {"header": {"order": 7}}, {"text": "journal"}])
def test_what_the_journal_tells(kept: RunningBroker, given: dict[str, Any]) -> None:
    """A message that is gone, whoever looked or did not: published, enqueued, acknowledged; only if it is asked for."""
    api = ApiClient(kept.management_url)
    found = search(api, journal=True, **given)
    assert (found["items"], found["stories"], found["journal"]["stopped"]) == ([], [], "")
    (story,) = found["journal"]["stories"]
    assert [(event["kind"], event["subject"]) for event in story["events"]] == [
        ("published", ""),
        ("enqueued", "told"),
        ("acked", "told"),
    ]
    assert [event["detail"] for event in story["events"]] == [{"routing_key": "told", "queues": ["told"]}, {}, {}]
    assert search(api, journal=True, id=story["message"])["journal"]["stories"] == [story]
    assert search(api, **given)["journal"] is None
    assert search(api, journal=True, message_id="nobody")["journal"]["stories"] == []
    assert api.ask("POST", "leveret/search/messages", {**given, "journal": "perhaps"}).status == 400


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """With a journal, in which a message came and went."""
    with start_broker(management=True, data=tmp_path_factory.mktemp("data")) as running:
        assert ApiClient(running.management_url).ask("PUT", "queues/%2F/told", {"durable": True}).status == 201
        with pika.BlockingConnection(pika.URLParameters(running.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            publish(channel, "told", b"in the journal", message_id="kept", headers={"order": 7}, delivery_mode=2)
            assert channel.basic_get("told", auto_ack=True)[2] == b"in the journal"
            publish(channel, "told", b"another", delivery_mode=2)  # confirmed: what was before is written
        yield running


def test_a_broker_without_a_journal_has_no_stories_of_it(api: ApiClient) -> None:
    """And says so."""
    assert search(api, message_id="x", journal=True)["journal"] is None


def test_the_journal_tells_of_each_of_a_run() -> None:
    """One record says what became of all of them."""
    files = SimulatedFiles()
    driver = Driver(Journal.open(PATH, ManualClock(), JournalOptions(), files=files, threaded=False))
    driver.declare("a")
    ids = driver.publish([b"x"] * 3, "a")
    driver.purge("a")
    driver.journal.wait(driver.journal.commit())
    for id_ in ids:
        reader = JournalReader(PATH, files)
        stories = JournalStories(reader, None, id_, stories_max=1, events_max=9, segments_max=9)
        for _ in stories.steps():
            pass
        assert [event["kind"] for event in stories.found[id_]] == ["published", "enqueued", "purged"]


def test_stories_end_where_the_disk_does_not_answer() -> None:
    """What was found before is told, with the reason for the end."""
    files = SimulatedFiles()
    driver = Driver(Journal.open(PATH, ManualClock(), JournalOptions(), files=files, threaded=False))
    driver.declare("a")
    driver.publish([b"x"], "a")
    driver.journal.wait(driver.journal.commit())

    def fails(operation: str, _: str) -> None:
        if operation == "read":
            raise OSError(errno.EIO, "it is broken")

    files.fault = fails
    stories = JournalStories(JournalReader(PATH, files), None, 1, stories_max=1, events_max=9, segments_max=9)
    list(stories.steps())
    assert "it is broken" in stories.ended
