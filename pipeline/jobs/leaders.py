"""The leaders of a cluster, whose journal is one history of all of them, and the duplicates that a takeover allows.

A message that was published again because its confirm was lost with a leader is another message with the same message
id. One that a lost leader had delivered comes again, without a return between. Each message still has one end.
"""

from ..engines.protocol import Row, rows
from .outputs import ALLOWED, conform
from .tables import Tables

LEADERS = "SELECT lsn, ts, reason FROM events WHERE kind = 'led' ORDER BY lsn"
DELIVERED = """
SELECT 'delivered again' AS duplicate, told.msg_id, told.msg_id AS first_id, told.vhost, told.queue, told.lsn,
    min(led.lsn) AS led_lsn,
    'delivered at LSN ' || min(before_lsn) || ', and again at ' || told.lsn || ' after a takeover' AS detail
FROM (
    SELECT msg_id, vhost, queue, lsn, kind,
        lag(kind) OVER (PARTITION BY msg_id, vhost, queue ORDER BY lsn) AS before,
        lag(lsn) OVER (PARTITION BY msg_id, vhost, queue ORDER BY lsn) AS before_lsn
    FROM events WHERE msg_id > 0 AND queue <> ''
) AS told
JOIN (SELECT lsn FROM events WHERE kind = 'led') AS led ON led.lsn > before_lsn AND led.lsn < told.lsn
ANTI JOIN {keeping} AS keeping ON keeping.vhost = told.vhost AND keeping.queue = told.queue
WHERE told.kind = 'delivered' AND told.before = 'delivered'
GROUP BY told.msg_id, told.vhost, told.queue, told.lsn
"""
PUBLISHED = """
SELECT 'published again' AS duplicate, later.msg_id, min(first.msg_id) AS first_id, later.vhost, '' AS queue, later.lsn,
    min(led.lsn) AS led_lsn,
    'has the message id of message ' || min(first.msg_id) || ', which another leader took' AS detail
FROM ({named}) AS later
JOIN ({named}) AS first ON first.name = later.name AND first.vhost = later.vhost AND first.address = later.address
    AND first.routing_key = later.routing_key
JOIN (SELECT lsn FROM events WHERE kind = 'led') AS led ON led.lsn > first.lsn AND led.lsn < later.lsn
GROUP BY later.msg_id, later.vhost, later.lsn
"""
NAMED = """
SELECT msg_id, lsn, vhost, address, routing_key, {message_id} AS name
FROM payloads WHERE cause_id = 0 AND {message_id} <> ''
"""


def leaders(tables: Tables) -> list[Row]:
    """When which node of a cluster began to lead; of a single broker none."""
    return rows(tables.engine, LEADERS)


def allowed(tables: Tables) -> str:
    """`ALLOWED`. Publishings are told apart only with contents, deliveries only with scope "all"."""
    dialect = tables.engine.dialect
    named = NAMED.format(message_id=dialect.member("properties_json", "message_id"))
    text = f"{DELIVERED.format(keeping=tables.keeping())} UNION ALL {PUBLISHED.format(named=named)}"
    return conform(dialect, text, ALLOWED)
