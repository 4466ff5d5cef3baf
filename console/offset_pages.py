"""Pages of lists of messages and leases, by offset: `?after=OFFSET&count=N`. Source: management page 16."""

from dataclasses import dataclass
from typing import Any

from .bodies import integer
from .http_messages import Request, bad_request

#: Maximum queues in a list of several virtual hosts, and maximum messages or leases of each queue in it.
QUEUES_MAX, MESSAGES_MAX = 200, 100
#: Maximum rows of a page.
PAGE_MAX = 500


@dataclass(slots=True, frozen=True)
class OffsetPage:
    """The rows from the offset `after`, at most `count`."""

    after: int
    count: int

    @classmethod
    def of(cls, request: Request) -> "OffsetPage":
        """The page that a request asks for. Raises: Refusal."""
        after, count = integer(request.query.get("after", 0)), integer(request.query.get("count", MESSAGES_MAX))
        if after < 0 or not 1 <= count <= PAGE_MAX:
            raise bad_request(f"after, count: expected numbers from 0 on, and from 1 to {PAGE_MAX}")
        return cls(after, count)

    def view(self, rows: list[Any], *, total: int) -> dict[str, Any]:
        """The page as JSON, with the offset of the next one; null: this is the last one."""
        end = self.after + len(rows)
        return {"items": rows, "next": end if len(rows) == self.count and end < total else None, "total": total}
