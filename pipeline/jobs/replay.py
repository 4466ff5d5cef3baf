"""The job `replay`: publishes messages again that SQL chooses. By default a dry run; it has a guard against loops.

Messages are sent at least once. A replay can be resumed: messages that the lake's `replay_log` has as sent under the
same id are not sent again. The log is written every thousand messages, so after a kill the last thousand may be sent
twice. For a dead-lettered copy the original message is sent, to its own exchange and routing key, if the lake has its
content.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ..engines.protocol import Row, rows, value
from ..schemas import EVENTS
from .outputs import REPLAY_LOG, conform
from .tables import Tables

ID_HEADER, COUNT_HEADER = "x-replay-id", "x-replay-count"
GENERATIONS_MAX = 16
#: Headers of earlier deaths. They are removed, or else a broker would continue their counts.
DEATH_HEADERS = ("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason", "x-delivery-count")
#: Views: the log of earlier replays, and the messages to send.
LOG, CHOSEN = "replay_log", "chosen"
ORDER = "source_lsn, msg_id"
#: One row per message with contents, even if `payloads` has it twice.
FIRST_CONTENT = """
SELECT msg_id, min(lsn) AS of_lsn FROM payloads GROUP BY msg_id
"""
CAUSES = "SELECT msg_id, max(cause_id) AS cause_id FROM payloads GROUP BY msg_id"
_OF_EVENTS = ", ".join(f"events.{column.name}" for column in EVENTS if column.name != "cause_id")
PICKED = f"""
SELECT msg_id, max(lsn) AS source_lsn, min(vhost) AS vhost, max(cause_id) AS cause_id
FROM (
    SELECT {_OF_EVENTS}, content.cause_id, content.exchange, content.routing_key, content.headers_json,
        content.properties_json, content.body
    FROM events JOIN (
        SELECT msg_id, cause_id, address AS exchange, routing_key, headers_json, properties_json, body FROM payloads
    ) AS content ON content.msg_id = events.msg_id
    WHERE events.msg_id > 0
) AS joined
WHERE ({{where}}) AND ({{selected}})
GROUP BY msg_id
"""
ORIGINALS = """
SELECT coalesce(causes.msg_id, picked.msg_id) AS msg_id, source_lsn, vhost, coalesce(causes.cause_id, 0) AS cause_id
FROM {picked} AS picked
LEFT JOIN causes ON picked.cause_id > 0 AND causes.msg_id = picked.cause_id
"""
CHOOSE = """
SELECT once.msg_id, source_lsn, once.vhost, address AS exchange, routing_key, headers_json, properties_json, body
FROM (
    SELECT msg_id, max(source_lsn) AS source_lsn, min(vhost) AS vhost FROM {picked} AS picked GROUP BY msg_id
) AS once
JOIN first_content USING (msg_id)
JOIN payloads ON payloads.msg_id = once.msg_id AND payloads.lsn = first_content.of_lsn
WHERE coalesce({replay_id} <> {id}, true) AND coalesce(TRY_CAST({count} AS int), 0) < {replays_max}
    AND once.msg_id NOT IN (
        SELECT msg_id FROM {log} WHERE replay_id = {id} AND sent = 1 AND coalesce(node, {first}) = {node}
    )
"""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay.

    where: a condition in SQL, with the columns of `events` and the content's exchange, routing_key, headers_json,
    properties_json and body. selected: another condition, on the columns of `events`. rate: messages per second.
    replays_max: a message that was replayed this often is not sent, which ends loops.
    """

    replay_id: str
    where: str
    rate: float = 100.0
    replays_max: int = 3
    selected: str = "true"


def choose(tables: Tables, options: ReplayOptions, first: str = "") -> int:
    """Make the view CHOSEN of the messages to send. Returns their number. The view LOG has to exist.

    `first`: the node of the rows of LOG without one: the lake had only that one then.
    Raises: NotRecorded, ValueError (`where` is no SQL).
    """
    tables.require_contents("a replay")
    engine, dialect = tables.engine, tables.engine.dialect
    engine.view("causes", CAUSES, cached=True)
    engine.view("first_content", FIRST_CONTENT)
    picked = "picked_0"
    try:
        engine.view(picked, PICKED.format(where=options.where, selected=options.selected), cached=True)
    except ValueError as error:
        raise ValueError(f"--where {options.where}: {error}") from error
    for generation in range(1, GENERATIONS_MAX + 1):
        if not value(engine, f"SELECT count(*) FROM {picked} WHERE cause_id > 0"):
            break
        before, picked = picked, f"picked_{generation}"
        engine.view(picked, ORIGINALS.format(picked=before), cached=True)
    text = CHOOSE.format(
        picked=picked,
        log=LOG,
        id=dialect.text(options.replay_id),
        node=dialect.text(tables.node),
        first=dialect.text(first),
        replay_id=dialect.json_field("headers_json", ID_HEADER),
        count=dialect.json_field("headers_json", COUNT_HEADER),
        replays_max=options.replays_max,
    )
    engine.view(CHOSEN, text, cached=True)
    return int(value(engine, f"SELECT count(*) FROM {CHOSEN}"))


def batches(tables: Tables, size: int) -> Iterator[list[Row]]:
    """The chosen messages in order, in lists of `size`. One list is in memory at a time."""
    places = iter(rows(tables.engine, f"SELECT msg_id FROM {CHOSEN} ORDER BY {ORDER}"))
    while some := [str(row["msg_id"]) for row in islice(places, size)]:
        wanted = f"SELECT * FROM {CHOSEN} WHERE msg_id IN ({', '.join(some)}) ORDER BY {ORDER}"
        yield rows(tables.engine, wanted)


def marked_headers(headers_json: str, replay_id: str) -> str:
    """The headers of the message to send: with those of this replay, without those of deaths."""
    headers = {name: value for name, value in json.loads(headers_json or "{}").items() if name not in DEATH_HEADERS}
    try:
        count = int(headers.get(COUNT_HEADER, 0))
    except (TypeError, ValueError):  # not a replay's header but a client's: counts as absent, as in CHOOSE
        count = 0
    headers[COUNT_HEADER] = count + 1
    headers[ID_HEADER] = replay_id
    return json.dumps(headers)


def vhosts_chosen(tables: Tables) -> list[str]:
    """The virtual hosts of the messages to send."""
    return [row["vhost"] for row in rows(tables.engine, f"SELECT DISTINCT vhost FROM {CHOSEN} ORDER BY vhost")]


def urls(vhosts: Iterable[str], url: str) -> dict[str, str]:
    """Virtual host -> URL. Each message is sent to the virtual host in which it was published.

    Raises: ValueError (`url` names another virtual host).
    """
    vhosts = sorted(vhosts)
    parts = urlsplit(url)
    named = unquote(parts.path[1:])
    if named and vhosts != [named] and vhosts:
        chosen_of = ", ".join(map(repr, vhosts))
        raise ValueError(
            f"--url names the virtual host {named!r}, but the chosen messages are of {chosen_of};"
            " select one in --where, or name none in --url: then each message is sent to its own"
        )
    return {vhost: urlunsplit(parts._replace(path=f"/{quote(vhost, safe='')}")) for vhost in vhosts}


def send(batch: list[Row], options: ReplayOptions, url: str) -> int:
    """Send messages, in their order within each virtual host. Returns their number; all are confirmed.

    Raises: ValueError, NotSent.
    """
    import asyncio

    from ..amqp.publishing import Publishing, publish_all

    count = 0
    for vhost, own in groupby(sorted(batch, key=lambda row: str(row["vhost"])), lambda row: str(row["vhost"])):
        where = Publishing(urls([vhost], url)[vhost], rate=options.rate)
        ready = ({**row, **_marked(row, options.replay_id)} for row in own)
        count += asyncio.run(publish_all(where, ready, options.replay_id))
    return count


def _marked(row: Row, replay_id: str) -> Row:
    """The values that a replay changes. A message without an id gets the same id each time that it is sent."""
    return {
        "headers_json": marked_headers(row["headers_json"], replay_id),
        "message_id": f"{replay_id}-{row['msg_id']}",
    }


def log_of(tables: Tables, messages: str, options: ReplayOptions, sent: int) -> str:
    """SQL of rows of `REPLAY_LOG`. `messages`: ids, or a query of ids, in SQL. `sent`: 0 or 1, as in the table."""
    dialect = tables.engine.dialect
    id_, node = dialect.text(options.replay_id), dialect.text(tables.node) if tables.node else "NULL"
    text = (
        f"SELECT {id_} AS replay_id, msg_id, source_lsn, exchange AS address, now() AS ts, {sent} AS sent"
        f", {node} AS node FROM {CHOSEN} WHERE msg_id IN ({messages})"
    )
    return conform(dialect, text, REPLAY_LOG)
