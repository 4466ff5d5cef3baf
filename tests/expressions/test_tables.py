"""The tables of queues page B.6 and B.7, row by row, as that page has them."""

import pytest
from expression_rows import Given, Row, given, rows, value_rows

from leveret.expressions.language import AMPS, JMS, Dialect, ExpressionError, compiled

ANSWERS = {"T": True, "F": False, "U": None}
FILTERS, SELECTORS = rows("X"), rows("J")


def test_every_row_is_read() -> None:
    """A row that the reader does not understand would not be tested."""
    assert [row.id for row in FILTERS] == [f"X{number:03}" for number in range(1, 124)]
    assert [row.id for row in SELECTORS] == [f"J{number:02}" for number in range(1, 30)]
    assert len(value_rows()) == 11


@pytest.mark.parametrize("row", FILTERS, ids=[row.id for row in FILTERS])
def test_filters(row: Row) -> None:
    """Content filters, with the answer in three values."""
    check(row, AMPS)


@pytest.mark.parametrize("row", SELECTORS, ids=[row.id for row in SELECTORS])
def test_selectors(row: Row) -> None:
    """Selectors, with the answer in three values."""
    check(row, JMS)


def check(row: Row, dialect: Dialect) -> None:
    """The answer, or that the text is refused."""
    if row.answer == "ERR":
        with pytest.raises(ExpressionError):
            compiled(row.expression, dialect)
        return
    expression = compiled(row.expression, dialect)
    assert expression.truth(given(row)) is ANSWERS[row.answer]
    assert expression.matches(given(row)) is (row.answer == "T")


@pytest.mark.parametrize("text, value", value_rows())
def test_values(text: str, value: str) -> None:
    """Expressions that are asked for their value."""
    found = compiled(text, AMPS).value(Given())
    assert ("NaN" if found != found else str(found)) == value
