"""Lists: columns, sort, pages, and rows made in slices. Source: management page 1.6.

`row` is called only for the rows that are shown, unless sorting needs it for all of them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from .encoding import encoded, list_in_steps
from .http_messages import JSON_TYPE, Answer, Refusal, Request, bad_request
from .steps import Steps, filter_in_steps, first_in_steps, map_in_steps, sort_in_steps

T = TypeVar("T")

PAGE_SIZE, PAGE_SIZE_MAX = 100, 500
NAME_MAX = 1024
#: Rows up to the end of a page for which the others are not sorted.
SELECTED_MAX = 2_000


class Columns:
    """The fields that a request asks for; dots lead into objects."""

    def __init__(self, request: Request) -> None:
        text = request.query.get("columns")
        self._paths = None if text is None else [path.split(".") for path in text.split(",") if path]

    def of(self, value: Any) -> Any:
        """The requested fields of an object, or of each object in a list."""
        if self._paths is None:
            return value
        if isinstance(value, list):
            return [self.of(one) for one in value]
        kept: dict[str, Any] = {}
        for path in self._paths:
            _copy(value, path, kept)
        return kept


def _copy(source: Any, path: list[str], kept: dict[str, Any]) -> None:
    for word in path[:-1]:
        if not isinstance(source, Mapping) or word not in source:
            return
        source = source[word]
    if isinstance(source, Mapping) and path[-1] in source:
        for word in path[:-1]:
            kept = kept.setdefault(word, {})
        kept[path[-1]] = source[path[-1]]


class Pagination:
    """The page of a list that a request asks for. Raises: Refusal."""

    def __init__(self, request: Request) -> None:
        query = request.query
        self.page: int | None = None
        if "page" not in query:
            return
        page, size = _number(query["page"]), _number(query.get("page_size"))
        if page < 1 or not 1 <= (PAGE_SIZE if size is None else size) <= PAGE_SIZE_MAX:
            shown = "undefined" if size is None else size
            raise Refusal(
                400,
                "invalid_pagination_parameters",
                f"Invalid pagination parameters: page number {page}, page size {shown}",
            )
        self.page, self.size = page, PAGE_SIZE if size is None else size
        self.matches = _filter(query.get("name", ""), is_regex=request.flag("use_regex"))

    def framed(self, rows: list[T], filtered: int, total: int) -> tuple[dict[str, int], list[T]]:
        """The frame of a page without its items, and the rows on it. `rows`: those up to the end of the page, or all
        that the filter takes, `filtered`. Raises: Refusal.
        """
        assert self.page is not None
        pages = -(-filtered // self.size)
        if self.page > max(pages, 1):
            raise Refusal(
                400,
                "page_out_of_range",
                f"Page out of range, page: {self.page} page size: {self.size}, len: {filtered}",
            )
        items = rows[(self.page - 1) * self.size : self.page * self.size]
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
    """A filter by part of a name, or by a regular expression on the linear-time engine; both ignore case."""
    if len(name) > NAME_MAX:
        raise bad_request("Pagination parameters are invalid")
    if not is_regex:
        part = name.lower()
        return lambda text: part in text.lower()
    return matcher(name)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text has a match of a regular expression, ignoring case. Raises: Refusal."""
    from ..expressions.patterns.pattern_syntax import PatternFault
    from ..expressions.patterns.patterns import Pattern

    try:
        found = Pattern(f"(?i){pattern}")
    except PatternFault:
        raise bad_request("Pagination parameters are invalid") from None
    return found.search


def sort_key(path: str) -> Callable[[Mapping[str, Any]], tuple[int, Any]]:
    """The sort key of a row by a field: numbers, then texts, then the rest. A missing value or null counts as 0."""
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


def _texts(found: str | tuple[str, ...]) -> tuple[str, ...]:
    return (found,) if isinstance(found, str) else found


def _joined(keys: list[Callable[[T], Any]]) -> Callable[[T], Any]:
    """One or two keys as one."""
    if len(keys) == 1:
        return keys[0]
    first, second = keys
    return lambda one: (first(one), second(one))


def listed(
    request: Request,
    objects: Iterable[T],
    row: Callable[[T], dict[str, Any]],
    *,
    name: Callable[[T], str | tuple[str, ...]] | None = None,
    order: Callable[[T], Any] | None = None,
    has_pages: bool = False,
    quick: Mapping[str, Callable[[T], Any]] | None = None,
) -> Steps:
    """The steps to a list, or to a page of one: an `Answer`.

    `objects`: a list is emptied; any other iterable must not change meanwhile. `order`: the sort key of the objects
    if the request names none. `name`: the text, or texts, that a page's filter matches. `quick`: fields that are known
    without a row. Each row becomes JSON at once and is not kept: the rows of all queues would take 100 MB.
    """
    columns, query = Columns(request), request.query
    pages = Pagination(request) if has_pages else None
    reverse = query.get("sort_reverse", "false")
    if reverse not in ("true", "false", ""):
        raise bad_request(["not_boolean", reverse])
    found = objects if isinstance(objects, list) else (yield from map_in_steps(lambda one: one, objects))
    total = len(found)
    is_paged = pages is not None and pages.page is not None
    if is_paged and name is not None and query.get("name"):
        assert pages is not None
        matches = pages.matches
        found = yield from filter_in_steps(lambda one: any(map(matches, _texts(name(one)))), found)
    filtered, by = len(found), query.get("sort")
    is_reversed, wanted = reverse == "true", filtered
    if pages is not None and pages.page is not None:
        wanted = min(filtered, pages.page * pages.size)
    keys = [] if order is None or by == "" else [order]
    if by:
        key = sort_key(by)
        keys.insert(0, (quick or {}).get(by) or (lambda one: key(row(one))))
    if keys and wanted <= min(SELECTED_MAX, filtered // 2):
        found = yield from first_in_steps(_joined(keys), found, wanted, is_reversed=is_reversed)
    else:
        for one in reversed(keys):
            found = yield from sort_in_steps(one, found)
        if is_reversed:
            found = found[::-1]
    frame: dict[str, Any] | None = None
    if is_paged:
        assert pages is not None
        frame, found = pages.framed(found, filtered, total)
    parts = yield from list_in_steps(found, lambda one: encoded(columns.of(row(one))))
    if frame is not None:
        parts = [encoded(frame)[:-1] + b',"items":', *parts, b"}"]
    return Answer(200, headers=(JSON_TYPE,), body=parts)
