"""Lists: columns, sort, pages, and rows made in slices. Source: management page 1.6.

What makes a row is called for the rows that are shown, unless the order or the filter needs all of them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from .messages import Refusal, Request, bad_request
from .options import Steps

T = TypeVar("T")

PAGE_SIZE, PAGE_SIZE_MAX = 100, 500
NAME_MAX = 1024
#: Rows that are made, or made to JSON, in one step: some milliseconds.
ROWS_A_STEP = 50


class Columns:
    """The fields that a request wants; dots go into objects."""

    def __init__(self, request: Request) -> None:
        text = request.query.get("columns")
        self._paths = None if text is None else [path.split(".") for path in text.split(",") if path]

    @property
    def are_all(self) -> bool:
        """Whether everything is wanted."""
        return self._paths is None

    def of(self, value: Any) -> Any:
        """The wanted part of an object, or of each in a list; a page keeps its frame."""
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


class Pages:
    """Which part of a list a request wants. Raises: Refusal."""

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

    def framed(self, rows: list[T], total: int) -> tuple[dict[str, int], list[T]]:
        """The frame of a page without its items, and the rows on it. Raises: Refusal."""
        assert self.page is not None
        pages = -(-len(rows) // self.size)
        if self.page > max(pages, 1):
            raise Refusal(
                400,
                "page_out_of_range",
                f"Page out of range, page: {self.page} page size: {self.size}, len: {len(rows)}",
            )
        items = rows[(self.page - 1) * self.size : self.page * self.size]
        return {
            "filtered_count": len(rows),
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
    """Part of a name, or a regular expression on the linear-time engine; both without regard to case."""
    if len(name) > NAME_MAX:
        raise bad_request("Pagination parameters are invalid")
    if not is_regex:
        part = name.lower()
        return lambda text: part in text.lower()
    return matcher(name)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text has a match of a regular expression, whatever its case. Raises: Refusal."""
    from ..expressions.patterns.pattern_syntax import PatternFault
    from ..expressions.patterns.patterns import Pattern

    try:
        found = Pattern(f"(?i){pattern}")
    except PatternFault:
        raise bad_request("Pagination parameters are invalid") from None
    return found.search


def sort_key(path: str) -> Callable[[Mapping[str, Any]], tuple[int, Any]]:
    """Orders rows by a field; what lacks it comes first, then numbers, texts, the rest."""
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


def listed(
    request: Request,
    objects: Iterable[T],
    row: Callable[[T], dict[str, Any]],
    *,
    name: Callable[[T], str] | None = None,
    order: Callable[[T], Any] | None = None,
    has_pages: bool = False,
    quick: Mapping[str, Callable[[T], Any]] | None = None,
) -> Steps:
    """The steps to a list, or to a page of one, as its request wants it: rows are made in slices.

    `order`: of the objects, when no other is asked for. `name`: what pages are filtered by. `quick`: fields that are
    known without a row, so that only those of one page are made.
    """
    columns, query = Columns(request), request.query
    pages = Pages(request) if has_pages else None
    reverse = query.get("sort_reverse", "false")
    if reverse not in ("true", "false", ""):
        raise bad_request(["not_boolean", reverse])
    found = list(objects)
    total = len(found)
    is_paged = pages is not None and pages.page is not None
    if is_paged and name is not None:
        assert pages is not None
        found = [one for one in found if pages.matches(name(one))]
    if order is not None and query.get("sort") != "":
        found.sort(key=order)
    by = query.get("sort")
    rows: list[Any] | None = None
    if by and quick is not None and by in quick:
        found.sort(key=quick[by])
    elif by:
        key, keys = sort_key(by), []
        rows = []
        for one in found:
            made = row(one)
            keys.append(key(made))
            rows.append(columns.of(made))
            if len(rows) % ROWS_A_STEP == 0:
                yield
        rows = [rows[place] for place in sorted(range(len(rows)), key=keys.__getitem__)]
    if reverse == "true":
        (found if rows is None else rows).reverse()
    frame: dict[str, Any] | None = None
    if is_paged:
        assert pages is not None
        if rows is None:
            frame, found = pages.framed(found, total)
        else:
            frame, rows = pages.framed(rows, total)
    if rows is None:
        rows = []
        for one in found:
            rows.append(columns.of(row(one)))
            if len(rows) % ROWS_A_STEP == 0:
                yield
    return rows if frame is None else {**frame, "items": rows}
