"""What is an expression, what is not, and where it goes wrong. Source: queues page B.2 (choices 11 to 14), B.3."""

import pytest
from expression_rows import Given

from leveret.expressions.language import AMPS, JMS, Dialect, ExpressionError, UnsupportedFunction, compiled


@pytest.mark.parametrize(
    "text, column, problem",
    [
        ("", 1, "expected a value, the text ends"),
        ("   ", 4, "expected a value, the text ends"),
        ("/a =", 5, "expected a value, the text ends"),
        ("/a = 1 extra", 8, "expected an operator or the end, found word extra"),
        ("/a /b", 4, "division needs blanks on both sides"),
        ("/a = 1)", 7, "expected an operator or the end, found operator )"),
        ("(/a = 1", 8, "expected an operator or ')', the text ends"),
        ("/a IN ()", 8, "expected a value, found operator )"),
        ("/a IN 1", 7, "expected '('"),
        ("/a IN (1 2)", 10, "expected ',' or ')'"),
        ("/a NOT 1", 8, "expected IN, BETWEEN, LIKE, MATCHES, BEGINS, ENDS or NULL after NOT"),
        ("/a BETWEEN 1", 13, "expected AND, the text ends"),
        ("/a LIKE /b", 9, "expected a quoted pattern, found path /b"),
        ("/a LIKE '('", 9, "the pattern: missing )"),
        ("/a LIKE 'a(?<=b)'", 9, "the pattern: look-behind is not supported"),
        (r"/a LIKE '\2(b)'", 9, "the pattern: refers to group 2, which does not exist"),
        ("/a IS 1", 7, "expected NULL or NAN"),
        ("/a BEGINS ('x')", 11, "expected WITH"),
        ("'open", 1, "the string has no closing '"),
        ("'a\\", 1, "the string has no closing '"),
        ("/a[x] = 1", 4, "expected the number of an element"),
        ("[/a//b] = 1", 1, "a name of the path is empty"),
        ("[a]", 1, "expected a path in brackets"),
        ("/a = 1x", 7, "expected an operator after the number"),
        ("/a = #", 6, "unexpected character '#'"),
        ("AND", 1, "expected a value, found word AND"),
        ("NOSUCH(1)", 1, "no such function: NOSUCH"),
        ("1 + upper()", 5, "UPPER takes 1 argument, not 0"),
        ("SUBSTR('a')", 1, "SUBSTR takes 2 to 3 arguments, not 1"),
        ("CONCAT()", 1, "CONCAT takes 1 or more arguments, not 0"),
        ("HEADER(/a)", 8, "HEADER takes a quoted text as argument 1"),
        ("PROPERTY('weight')", 10, "no such property: weight"),
        ("REGEXP_REPLACE(/a, '(', '')", 16, "the pattern: missing )"),
        ("/a = 1 /* comment */", 9, "expected a value, found operator *"),
        ("/a = '1' ESCAPE 'x'", 10, "expected an operator or the end"),
    ],
)
def test_faults_of_filters(text: str, column: int, problem: str) -> None:
    """Each with its column and what was expected there."""
    with pytest.raises(ExpressionError, match=rf"^column {column}: ") as caught:
        compiled(text, AMPS)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "text, column, problem",
    [
        ("/a = 1", 1, "expected a value, found operator /"),
        ("s > 'a'", 5, "strings have no order in selectors"),
        ("'a' <= s", 1, "strings have no order in selectors"),
        ("s BETWEEN 'a' AND 'b'", 11, "strings have no order in selectors"),
        ("a LIKE b", 8, "expected a quoted pattern"),
        ("a LIKE 'b' ESCAPE 'cd'", 19, "expected one character in quotes"),
        ('"" = 1', 1, "expected a name within the quotes"),
        ("a = /* open", 5, "expected a value"),
        ("convert_string_expressions:age >", 33, "expected a value, the text ends"),
    ],
)
def test_faults_of_selectors(text: str, column: int, problem: str) -> None:
    """The same in the other dialect."""
    with pytest.raises(ExpressionError, match=rf"^column {column}: ") as caught:
        compiled(text, JMS)
    assert problem in str(caught.value)


def test_a_fault_names_its_line_and_column() -> None:
    """In an expression of several lines."""
    with pytest.raises(ExpressionError) as caught:
        compiled("/a = 1 AND\n\t/b = = 2 AND\n/c = 3", AMPS)
    assert str(caught.value) == "line 2, column 7: expected a value, found operator ="


@pytest.mark.parametrize("text", ["GEO_DISTANCE(/a)", "sin(1) = 0", "1 = VALUE_LOOKUP('x')", "UNIX_TIMESTAMP() > 1"])
def test_functions_that_only_amps_has(text: str) -> None:
    """They are refused by name: level 2, and what is another value each time (queues page B.4)."""
    with pytest.raises(UnsupportedFunction, match="[A-Z_]+"):
        compiled(text, AMPS)


@pytest.mark.parametrize(
    "text, is_taken",
    [
        ("/a = '" + "x" * (8 * 1024 - 7) + "'", True),
        ("/a = '" + "x" * (8 * 1024 - 6) + "'", False),
        ("(" * 64 + "1" + ")" * 64, True),
        ("(" * 65 + "1" + ")" * 65, False),
        ("NOT " * 64 + "1", True),
        ("NOT " * 65 + "1", False),
        ("- " * 64 + "1", True),
        ("- " * 65 + "1", False),
        ("ABS(" * 64 + "1" + ")" * 64, True),
        ("ABS(" * 65 + "1" + ")" * 65, False),
        ("1" + " = 1" * 64, True),
        ("1" + " = 1" * 65, False),
        ("1" + " + 1" * 2000, True),
        ("/a = 1" + " OR /a = 1" * 800, True),
        (f"/a IN ({', '.join(map(str, range(1000)))})", True),
        (f"/a IN ({', '.join(map(str, range(1001)))})", False),
        (f"/a IN ({'(' * 63}1{')' * 63})", True),
        (f"/a IN ({'(' * 64}1{')' * 64})", False),
    ],
)
def test_length_depth_and_members_are_bounded(text: str, is_taken: bool) -> None:
    """8 KiB, 64 levels, 1,000 members (choice 13); what stands side by side is not deep."""
    if is_taken:
        compiled(text, AMPS).truth(Given(b'{"a":1}'))
    else:
        with pytest.raises(ExpressionError):
            compiled(text, AMPS)


@pytest.mark.parametrize(
    "text, dialect, normal",
    [
        ("/a==1 and not/b!=2", AMPS, "/a = 1 AND NOT /b <> 2"),
        ("((/a)) = ('x')", AMPS, "/a = 'x'"),
        ('/a = "it\'s"', AMPS, "/a = 'it''s'"),
        ("/a not null", AMPS, "/a IS NOT NULL"),
        ("[/a/b] = 1", AMPS, "/a/b = 1"),
        ("[/a b/c] = 1", AMPS, "[/a b/c] = 1"),
        ("/a MOD 2 = upper('x')", AMPS, "/a % 2 = UPPER('x')"),
        ("/a = '\\x01\\n'", AMPS, "/a = '\\x01\\n'"),
        ("/a matches 'x'", AMPS, "/a LIKE 'x'"),
        ("/a LIKE r'x''y'", AMPS, "/a LIKE r'x''y'"),
        ("(a or b) and c", JMS, "(a OR b) AND c"),
        ("a - (b - c) - d = 1", JMS, "a - (b - c) - d = 1"),
        ('"my-prop" = "plain" -- not that', JMS, '"my-prop" = plain'),
        ("/* what */ a /* of */ = 1", JMS, "a = 1"),
        ("hyphenated_props:my-prop = 1", JMS, '"my-prop" = 1'),
        ("hyphenated_props:convert_string_expressions:a-b > '1'", JMS, "convert_string_expressions:\"a-b\" > '1'"),
        ("a/2 = 1", JMS, "a / 2 = 1"),
        ("ends ENDS WITH ('x')", JMS, "ends ENDS WITH ('x')"),
        ("a MATCHES 'x' AND b LIKE 'y!%' ESCAPE '!'", JMS, "a MATCHES 'x' AND b LIKE 'y!%' ESCAPE '!'"),
    ],
)
def test_normal_forms(text: str, dialect: Dialect, normal: str) -> None:
    """Filters with the same normal form are the same filter."""
    expression = compiled(text, dialect)
    assert expression.text == normal
    assert expression.key == compiled(normal, dialect).key


def test_the_client_is_part_of_a_filter_that_asks_for_it() -> None:
    """CLIENT_NAME and the like are those of whom the filter belongs to; others' filters with the same text differ."""
    text = "HEADER('for') = USER()"
    one, other = (compiled(text, AMPS, {"USER": name}) for name in ("ada", "bob"))
    subject = Given(headers={"for": "ada"})
    assert one.matches(subject) and not other.matches(subject)
    assert one.key != other.key
    assert compiled("1 = 1", AMPS, {"USER": "ada"}).key == compiled("1 = 1", AMPS, {"USER": "bob"}).key
    assert compiled("USER() IS NULL", AMPS).matches(subject)
