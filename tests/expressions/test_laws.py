"""Laws of the language, on random trees and messages: printing and parsing, three values, cost, and no exception.

Source: queues page B.2.
"""

import json
from typing import Any

import pytest
from effort import examples
from expression_rows import Given
from expression_trees import DOCUMENTS, HEADERS, NEARLY, trees
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.expressions.language import AMPS, JMS, Dialect, ExpressionError, Subject, compiled
from leveret.expressions.parser import parse
from leveret.expressions.printing import printed
from leveret.expressions.subject import COST_MAX
from leveret.expressions.syntax import Logic, Node, Not

#: Trees are large to draw.
FEW = settings(max_examples=examples(15))


def message(document: Any, headers: dict[str, Any]) -> Given:
    """With a body in JSON."""
    return Given(json.dumps(document).encode(), headers=headers, properties={"priority": 4}, routing_key="k")


@pytest.mark.parametrize("dialect", [AMPS, JMS])
@FEW
@given(data=st.data())
def test_what_is_printed_is_parsed_to_the_same(dialect: Dialect, data: st.DataObject) -> None:
    """So the text of a tree stands for it: consumers with the same filter are one group, however they wrote it."""
    tree = data.draw(trees(dialect))
    text = printed(tree, dialect)
    again = parse(text, dialect)[0]
    assert repr(again) == repr(tree)
    assert printed(again, dialect) == text


@pytest.mark.parametrize("dialect", [AMPS, JMS])
@FEW
@given(data=st.data(), document=DOCUMENTS, headers=HEADERS)
def test_an_evaluation_has_an_answer_and_an_end(
    dialect: Dialect, data: st.DataObject, document: Any, headers: dict[str, Any]
) -> None:
    """One of three values, never an exception, within what it may cost; the same the next time and in normal form."""
    tree = data.draw(trees(dialect))
    expression = compiled(printed(tree, dialect), dialect)
    subject = message(document, headers)
    answer = expression.truth(subject)
    assert answer is None or answer is True or answer is False
    assert subject.spent <= COST_MAX
    assert expression.truth(subject) is answer
    assert compiled(expression.text, dialect).truth(message(document, headers)) is answer
    expression.value(subject)
    assert subject.reads <= 2 + expression.text.count("MESSAGE_SIZE") * 4 + expression.text.count("AMQSize") * 4


@FEW
@given(one=trees(AMPS), other=trees(AMPS), document=DOCUMENTS, headers=HEADERS)
def test_logic_is_kleenes(one: Node, other: Node, document: Any, headers: dict[str, Any]) -> None:
    """The order of operands never matters, NOT NOT is nothing, and De Morgan's laws hold (choice 2)."""

    def answer(tree: Node) -> bool | None:
        return compiled(printed(tree, AMPS), AMPS).truth(message(document, headers))

    left, right = answer(one), answer(other)
    both = answer(Logic("AND", (one, other)))
    any_ = answer(Logic("OR", (one, other)))
    assert both is answer(Logic("AND", (other, one)))
    assert any_ is answer(Logic("OR", (other, one)))
    assert both is (False if False in (left, right) else None if None in (left, right) else True)
    assert any_ is (True if True in (left, right) else None if None in (left, right) else False)
    assert answer(Not(Not(one))) is left
    assert answer(Not(Logic("AND", (one, other)))) is answer(Logic("OR", (Not(one), Not(other))))


@pytest.mark.parametrize("dialect", [AMPS, JMS])
@FEW
@given(text=NEARLY, document=DOCUMENTS, headers=HEADERS)
def test_any_text_is_an_expression_or_says_where_it_is_not(
    dialect: Dialect, text: str, document: Any, headers: dict[str, Any]
) -> None:
    """No other exception than those of this room; the place is in the text."""
    try:
        expression = compiled(text, dialect)
    except ExpressionError as error:
        assert 0 <= error.position <= len(text)
        assert error.line >= 1 and error.column >= 1
        assert str(error)
        return
    answer = expression.truth(message(document, headers))
    assert answer is None or isinstance(answer, bool)


@pytest.mark.parametrize(
    "text", ["/a = 'x'", "/a LIKE 'x' OR /b[0] > 3", "a = 1 AND HEADER('b.c') = 2", "/a/b/c IS NULL"]
)
@FEW
@given(body=st.binary(max_size=200))
def test_any_octets_are_a_body(text: str, body: bytes) -> None:
    """What is no JSON has no paths (queues page A.3.1)."""
    subject: Subject = Given(body)
    answer = compiled(text, AMPS).truth(subject)
    assert answer is None or isinstance(answer, bool)
