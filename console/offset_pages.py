"""Pages of a list by offset: `?after=OFFSET&count=N`, for scheduled messages and leases.

Source: management page 16.
"""

from dataclasses import dataclass
from typing import Any

from .bodies import integer
from .http_messages import Request, bad_request

#: Of a list over all virtual hosts: maximum queues, and maximum messages or leases of each queue. A page has as many
#: rows as the latter if the request does not say.
QUEUES_MAX, MESSAGES_MAX = 200, 100
#: Maximum rows of a page.
PAGE_MAX = 500


@dataclass(slots=True, frozen=True)
class OffsetPage:
    """A page that a request asks for: at most `count` rows, from the offset `after` on."""

    after: int
    count: int

    @classmethod
    def from_request(cls, request: Request) -> "OffsetPage":
        """The page that a request asks for. Raises: Refusal."""
        after, count = integer(request.query.get("after", 0)), integer(request.query.get("count", MESSAGES_MAX))
        if after < 0 or not 1 <= count <= PAGE_MAX:
            raise bad_request(f"after: expected a number from 0 on; count: expected one from 1 to {PAGE_MAX}")
        return cls(after, count)

    def view(self, rows: list[Any], *, total: int) -> dict[str, Any]:
        """The page as JSON. Its `next` is the offset of the next page; null: this is the last one."""
        end = self.after + len(rows)
        return {"items": rows, "next": end if len(rows) == self.count and end < total else None, "total": total}
