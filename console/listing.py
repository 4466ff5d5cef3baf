"""Makes lists of objects, with the columns, order and pages that a request asks for. Source: management page 1.6.

Rows are made only for the objects that are shown, unless the order needs all of them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .encoding import encoded, list_in_steps
from .http_messages import JSON_TYPE, Answer, Refusal, Request, bad_request
from .steps import ListSteps, Steps, filter_in_steps, first_in_steps, map_in_steps, sort_in_steps

T = TypeVar("T")
#: The fields to keep of an object; empty: all. `a.b,a.c` is {"a": {"b": {}, "c": {}}}.
_Tree = dict[str, "_Tree"]
SortKey = Callable[[T], Any]

PAGE_SIZE, PAGE_SIZE_MAX = 100, 500
NAME_MAX = 1024
#: Maximum depth to which a column leads: no answer is deeper.
WORDS_MAX = 100
#: Rows up to this one are selected without sorting the others; for later pages all rows are sorted.
SELECTED_MAX = 2_000


class Columns:
    """Selects the fields that a request asks for: `columns=name,backing_queue_status.len`."""

    def __init__(self, request: Request) -> None:
        text = request.query.get("columns")
        self._wanted = (
            None if text is None else _tree_of([words for path in text.split(",") if (words := _words(path))])
        )

    def selected(self, value: Any) -> Any:
        """The requested fields of an object, or of each object in a list, and of the objects in them."""
        if self._wanted is None:
            return value
        if isinstance(value, list):
            return [self.selected(one) for one in value]
        return _fields(value, self._wanted)


def _words(path: str) -> list[str]:
    return [word for word in path.split(".", WORDS_MAX - 1) if word]


def _tree_of(paths: list[list[str]]) -> _Tree:
    rests: dict[str, list[list[str]]] = {}
    for word, *rest in paths:
        rests.setdefault(word, []).append(rest)
    return {word: {} if [] in some else _tree_of(some) for word, some in rests.items()}


def _fields(source: Mapping[str, Any], wanted: _Tree) -> dict[str, Any]:
    return {word: _part(source[word], inner) for word, inner in wanted.items() if word in source}


def _part(value: Any, wanted: _Tree) -> Any:
    """The wanted fields of a value. As in RabbitMQ, values without fields are kept where fields of them are wanted."""
    if not wanted:
        return value
    if isinstance(value, list):
        return [_part(one, wanted) for one in value]
    return _fields(value, wanted) if isinstance(value, Mapping) else value


@dataclass(slots=True, frozen=True)
class Pagination:
    """The page of a list that a request asks for, with `size` rows. The first page has the number 1.

    `matches`: whether a name passes the page's filter; None: there is no filter.
    """

    page: int
    size: int
    matches: Callable[[str], bool] | None

    @classmethod
    def from_request(cls, request: Request) -> "Pagination | None":
        """The page that a request asks for; None: the whole list. Raises: Refusal."""
        query = request.query
        if "page" not in query:
            return None
        page, size = _number(query["page"]), _number(query.get("page_size"))
        if page < 1 or not 1 <= (PAGE_SIZE if size is None else size) <= PAGE_SIZE_MAX:
            shown = "undefined" if size is None else size
            raise Refusal(
                400,
                "invalid_pagination_parameters",
                f"Invalid pagination parameters: page number {page}, page size {shown}",
            )
        name = query.get("name", "")
        matches = _filter(name, is_regex=request.flag("use_regex")) if name else None
        return cls(page, PAGE_SIZE if size is None else size, matches)

    @property
    def end(self) -> int:
        """The number of rows up to the end of this page."""
        return self.page * self.size

    def cut(self, rows: list[T], filtered: int, total: int) -> tuple[dict[str, int], list[T]]:
        """The page's fields besides its items, and the rows on it. Raises: Refusal.

        `rows`: at least those up to the end of the page. `filtered`, `total`: the number of rows that pass the filter,
        and of all rows.
        """
        pages = -(-filtered // self.size)
        if self.page > max(pages, 1):
            raise Refusal(
                400,
                "page_out_of_range",
                f"Page out of range, page: {self.page} page size: {self.size}, len: {filtered}",
            )
        items = rows[self.end - self.size : self.end]
        return {
            "filtered_count": filtered,
            "item_count": len(items),
            "page": self.page,
            "page_count": pages,
            "page_size": self.size,
            "total_count": total,
        }, items


def _number(text: str | None) -> Any:
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise bad_request("Pagination parameters are invalid")
    return int(text)


def _filter(name: str, *, is_regex: bool) -> Callable[[str], bool]:
    """A filter by a part of a name, or by a regular expression. Both ignore case. Raises: Refusal."""
    if len(name) > NAME_MAX:
        raise bad_request("Pagination parameters are invalid")
    if not is_regex:
        part = name.lower()
        return lambda text: part in text.lower()
    from ..expressions.patterns.pattern_syntax import PatternFault
    from ..expressions.patterns.patterns import Pattern

    try:
        return Pattern(f"(?i){name}").search
    except PatternFault:
        raise bad_request("Pagination parameters are invalid") from None


def sort_key(path: str) -> Callable[[Mapping[str, Any]], tuple[int, Any]]:
    """The sort key for a field: numbers, then texts, then other values. A missing value or null counts as 0."""
    words = path.split(".")

    def key(row: Any) -> tuple[int, Any]:
        for word in words:
            row = row.get(word) if isinstance(row, Mapping) else None
        if row is None:
            return (0, 0)
        if isinstance(row, bool | int | float):
            return (0, row)
        return (1, row) if isinstance(row, str) else (2, str(row))

    return key


def _sort_in_steps(
    request: Request, items: list[T], order: SortKey[T] | None, key_of_field: Callable[[str], SortKey[T]], wanted: int
) -> ListSteps[T]:
    """At least the first `wanted` items, in the order that the request asks for. Raises: Refusal.

    `order`: the key if the request names no field, and for rows that are equal in that field. `key_of_field`: makes the
    key for a field.
    """
    field, is_reversed = request.query.get("sort"), request.flag("sort_reverse")
    keys = [] if order is None or field == "" else [order]
    if field:
        keys.insert(0, key_of_field(field))
    if keys and wanted <= min(SELECTED_MAX, len(items) // 2):
        return (yield from first_in_steps(keys[0], items, wanted, tie=keys[-1], is_reversed=is_reversed))
    for key in reversed(keys):
        items = yield from sort_in_steps(key, items)
    return items[::-1] if is_reversed else items


def listed(
    request: Request,
    objects: Iterable[T],
    row: Callable[[T], dict[str, Any]],
    *,
    name: Callable[[T], str | tuple[str, ...]] | None = None,
    order: SortKey[T] | None = None,
    has_pages: bool = False,
    quick: Mapping[str, SortKey[T]] | None = None,
) -> Steps:
    """The steps to an `Answer` with a list, or with a page of one. Raises: Refusal.

    `objects`: a list is emptied; any other iterable must not change meanwhile. `row`: makes the row of an object.
    `name`: the text, or texts, to which the filter of a page is applied. `order`: the sort key if the request names no
    field. `quick`: field -> sort key, for fields that are known without making a row. Each row becomes JSON at once and
    is not kept: the rows of all queues would take 100 MB.
    """
    columns = Columns(request)
    page = Pagination.from_request(request) if has_pages else None
    if request.query.get("sort_reverse", "false") not in ("true", "false", ""):
        raise bad_request(["not_boolean", request.query["sort_reverse"]])

    def key_of_field(field: str) -> SortKey[T]:
        key = sort_key(field)
        return (quick or {}).get(field) or (lambda one: key(row(one)))

    items = objects if isinstance(objects, list) else (yield from map_in_steps(lambda one: one, objects))
    total = len(items)
    if page is not None and page.matches is not None and name is not None:
        matches = page.matches
        items = yield from filter_in_steps(lambda one: any(map(matches, _texts(name(one)))), items)
    filtered = len(items)
    wanted = filtered if page is None else min(filtered, page.end)
    items = yield from _sort_in_steps(request, items, order, key_of_field, wanted)
    frame = None
    if page is not None:
        frame, items = page.cut(items, filtered, total)
    parts = yield from list_in_steps(items, lambda one: encoded(columns.selected(row(one))))
    if frame is not None:
        parts = [encoded(frame)[:-1] + b',"items":', *parts, b"}"]
    return Answer(200, headers=(JSON_TYPE,), body=parts)


def _texts(found: str | tuple[str, ...]) -> tuple[str, ...]:
    return (found,) if isinstance(found, str) else found
