"""Which rows of the decision table of flow control came up (queues page E.4), and of the states of hold areas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from pamqp import commands

from leveret.amqp_frontend.flow.parking import Parking
from leveret.amqp_frontend.session import publishing
from leveret.amqp_frontend.wire.events import ChannelMethod

#: Row 9 is counted where such a message comes in (`books.flow`), 12 where clients hear of it, 14 by evictions.
ROWS = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "15")


@contextmanager
def counting_rows(counts: Counter[str]) -> Iterator[None]:
    """Meanwhile each row that is met is counted, as "flow row: 5"."""

    def row(number: int) -> None:
        counts[f"flow row: {number}"] += 1

    park_for, refuse, expired = Parking.park_for, publishing.refuse, publishing._has_expired

    def held(area: Parking, full: Any, channel: Any, event: Any, turn: Any) -> None:
        if full.is_alarm:
            row(3 if "connection.blocked" in area._login.capabilities else 4)
        else:
            row(1 if channel.session.confirms is not None else 2)
        if full.fails_after_ms:
            row(8)
        if full.node.limit_name in ("store", "temp"):
            row(10 if full.node.limit_name == "store" else 11)
        if type(event) is ChannelMethod and type(event.method) is commands.Tx.Commit:
            row(13)
        park_for(area, full, channel, event, turn)

    def refused(session: Any, channel: Any, known: Any, full: Any, contents: Any, *, behind: int = 0) -> None:
        row(5 if channel.session.confirms is not None else 6 if known.mandatory else 7)
        refuse(session, channel, known, full, contents, behind=behind)

    def has_expired(session: Any, known: Any, turn: Any) -> bool:
        if is_over := expired(session, known, turn):
            row(15)
        return is_over

    with ExitStack() as stack:
        stack.enter_context(patch.object(Parking, "park_for", held))
        stack.enter_context(patch.object(publishing, "refuse", refused))
        stack.enter_context(patch.object(publishing, "_has_expired", has_expired))
        yield
