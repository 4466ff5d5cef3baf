"""Values where queues page B.6 and B.7 have no rows: functions, numbers, headers. Source: queues page B.1, B.4."""

import math
from typing import Any

import pytest
from expression_rows import Given

from leveret.expressions.language import AMPS, JMS, compiled

BODY = b"""{"s": "caf\xc3\xa9 Noir", "n": 42, "f": -2.5, "t": true, "a": [3, "4", null, "x", [5]], "o": {"k": 1},
"big": 123456789012345678901234567890, "z": "", "e": [""], "l": [{"v": [1, 2]}, {"v": 3}, 7], "w": [1, 9],
"d": [[1, 2], [3, [4]]]}"""


@pytest.mark.parametrize(
    "text, value",
    [
        ("CONCAT('a', NULL, 1, 2.5, TRUE, 3.0)", "a12.513"),
        ("CONCAT(NULL, NULL)", None),
        ("UPPER(/s)", "CAF\xe9 NOIR"),
        ("LOWER('ABC\xc9')", "abc\xc9"),
        ("LENGTH(/s)", 9),
        ("LENGTH(/n)", 2),
        ("INSTR(/s, 'Noir')", 6),
        ("INSTR(/s, 'noir')", 0),
        ("INSTR_I(/s, 'nOIR')", 6),
        ("INSTR(/none, 'x')", None),
        ("STREQUAL_I('aB', 'Ab')", 1),
        ("STREQUAL_I('a', 'b')", 0),
        ("SUBSTR('keyboard', 4, 2)", "bo"),
        ("SUBSTR('keyboard', 0, 3)", "key"),
        ("SUBSTR('keyboard', 4, -1)", None),
        ("LEFT('keyboard', 3)", "key"),
        ("LEFT('keyboard', 0)", None),
        ("RIGHT('key', 9)", "key"),
        ("RIGHT('key', 0)", None),
        ("TRIM('  x ')", "x"),
        ("LTRIM('--x-', '-')", "x-"),
        ("RTRIM('--x-', '-')", "--x"),
        ("REPLACE('aaa', 'a', 'bc')", "bcbcbc"),
        ("REPLACE('aaa', '', 'b')", "aaa"),
        (r"REGEXP_REPLACE('2026-11-23', r'([0-9]+)-([0-9]+)', '\\2/\\1')", "11/2026-23"),
        (r"REGEXP_REPLACE('aXbXc', 'X', '\\\\')", "a\\b\\c"),
        (r"REGEXP_REPLACE('abab', '(a)(b)?\1', '<\\0>')", "ab" + "ab"),
        ("REVERSE('abc')", "cba"),
        ("CHAR_VALUE(65)", "A"),
        ("CHAR_VALUE(0)", None),
        ("CRC32('123456789')", 0xE3069283),
        ("MD5('')", None),
        ("MD5('abc')", "900150983cd24fb0d6963f7d28e17f72"),
        ("ABS(/f)", 2.5),
        ("SIGN(/f)", -1),
        ("FLOOR(/f)", -3),
        ("CEILING(/f)", -2),
        ("ROUND(2.5)", 3),
        ("ROUND(1234.5, -2)", 1200),
        ("ROUND(12, 3)", 12),
        ("SQRT(16)", 4.0),
        ("SQRT(-1)", math.nan),
        ("POWER(2, 10)", 1024.0),
        ("POWER(10, 1000)", math.inf),
        ("POWER(0, -1)", math.nan),
        ("EXP(0)", 1.0),
        ("EXP(100000)", math.inf),
        ("LN(1)", 0.0),
        ("LN(0)", math.nan),
        ("LOG2(8)", 3.0),
        ("LOG10(1000)", 3.0),
        ("LEAST(3, '2', 'x', NULL)", 2),
        ("GREATEST(NULL)", math.nan),
        ("ABS(NULL)", None),
        ("ABS('x')", math.nan),
        ("ARRAY_COUNT(/a)", 5),
        ("ARRAY_COUNT(/n)", 1),
        ("ARRAY_COUNT(/d)", 4),
        ("ARRAY_COUNT(/none)", 0),
        ("ARRAY_MAX(/a)", 5),
        ("ARRAY_MIN(/a)", 3),
        ("ARRAY_SUM(/a)", 12),
        ("ARRAY_SUM(/none)", None),
        ("ARRAY_TO_STRING(/a, '-')", "3-4-x-5"),
        ("ARRAY_TO_STRING(/a, '-', '?')", "3-4-?-x-5"),
        ("STRFTIME('%Y-%m-%dT%H:%M:%S.%f %j %a %B %p', 86399.5)", "1970-01-01T23:59:59.500000 001 Thu January PM"),
        (
            "STRFTIME('%F %T %D %R %y %I %s %z %Z %% %q', 0)",
            "1970-01-01 00:00:00 01/01/70 00:00 70 12 0 +0000 UTC % %q",
        ),
        ("STRFTIME('%A %b', -1)", "Wednesday Dec"),
        ("STRFTIME('%%F %%%F', 0)", "%F %1970-01-01"),
        ("STRPTIME('%F 1970', '%%F %Y')", 0.0),
        ("STRPTIME('%q 1970', '%q %Y')", 0.0),
        ("STRPTIME('q 1970', '%q %Y')", None),
        ("STRFTIME('%Y', 1e300)", None),
        ("STRFTIME('%Y', 'x')", None),
        ("STRPTIME('2026-11-23T01:02:03.25', '%FT%T.%f')", 1795395723.25),
        ("STRPTIME('70', '%y')", 0.0),
        ("STRPTIME('69', '%y')", -31_536_000.0),
        ("STRPTIME('68', '%y')", 3_092_601_600.0),
        ("STRPTIME('12', '%s')", 12.0),
        ("STRPTIME('2026-13-01', '%F')", None),
        ("STRPTIME('2026-11-23 ', '%F')", None),
        ("TRUE_VALUE()", True),
        ("FALSE_VALUE()", False),
        ("NAN_VALUE()", math.nan),
        ("IF(/none = 1, 'a', 'b')", "b"),
        ("COALESCE(NULL, '', 3)", 3),
        ("+ '12'", 12),
        ("/n + /none", None),
        ("1 + /n + /none", None),
        ("- /t", -1),
        ("9223372036854775807 + 1", 1 << 63),
        ("18446744073709551616 * 2", float(1 << 65)),
        ("99999999999999999999999", 1e23),
        ("7.5 % 2", 1.5),
        ("-7.5 % 2", -1.5),
        ("1e308 * 10 % 3", math.nan),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("-7 / -2", 3),
        ("1 / 0", math.nan),
        ("1.0 / 0", math.nan),
        ("/l/v", [1, 2, 3]),
        ("/l/v[1]", 2),
        ("/l[1]/v", 3),
        ("/n[0]", 42),
        ("/o", {"k": 1}),
        ("/o + 1", math.nan),
        ("/a + 1", 4),
        ("-/a", -3),
        ("CONCAT(/a, '.')", "3."),
        ("LENGTH(/l/v)", 1),
        ("ROUTING_KEY()", "eu.it"),
        ("EXCHANGE()", "orders"),
        ("TOPIC_NAME()", "orders"),
        ("MESSAGE_SIZE()", len(BODY)),
        ("CORRELATION_ID()", "c1"),
        ("PROPERTY('app_id')", None),
        ("HEADER('x.y')", 1),
        ("HEADER('table.inner')", 2),
        ("HEADER('table.none.more')", None),
        ("table.inner", 2),
        ("BOOKMARK()", None),
        ("STRPTIME('86400.25', '%s.%f')", 86400.25),
    ],
)
def test_values_of_filters(text: str, value: Any) -> None:
    """Each function with its edges: NULL gives NULL, what is no number NaN."""
    subject = Given(
        BODY,
        routing_key="eu.it",
        exchange="orders",
        headers={"x.y": 1, "table": {"inner": 2}},
        properties={"correlation_id": "c1"},
    )
    found = compiled(text, AMPS).value(subject)
    if isinstance(value, float) and value != value:
        assert isinstance(found, float) and found != found
    else:
        assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "text, answer",
    [
        ("/big = 123456789012345678901234567890", True),
        ("/big > 1", True),
        ("/t = 1", True),
        ("/t = '1'", True),
        ("/t = 'yes'", False),
        ("/s > 'caf'", True),
        ("/a = 4", True),
        ("/a = 5", True),
        ("/a = 9", None),
        ("/a <> /e", None),
        ("/a BETWEEN 3.5 AND 4.5", True),
        ("/a LIKE '^x$'", True),
        ("/a BEGINS WITH ('x')", True),
        ("/a IN (9, 10)", None),
        ("/a IN (5)", True),
        ("'5' IN (4, 5)", True),
        ("/l IN (7)", True),
        ("/w BETWEEN 4 AND 6", False),
        ("/a", True),
        ("'0'", False),
        ("'0.0e5'", False),
        ("'x'", None),
        ("/n / 0", None),
        ("1e400 > 1", True),
        ("/n IN ('41', '42')", True),
        ("/s IN ('x', NULL)", None),
        ("/o LIKE 'k'", None),
        ("/o IN (1)", None),
        ("/n BEGINS WITH ('4', '5')", True),
        ("/none ENDS WITH ('x')", None),
        ("/s ENDS WITH (/none)", None),
        ("/f LIKE '^-2\\.5$'", True),
        ("NULL", None),
        ("NULL IS NULL", True),
        ("(/none = 1) IS NULL", True),
        ("/n IS NOT NAN", True),
        ("'abc' LIKE r'b'", True),
        ("/e + 1 IS NULL", True),
        ("/e + 1 IS NAN", False),
    ],
)
def test_answers_of_filters(text: str, answer: bool | None) -> None:
    """Comparisons of values of different kinds."""
    assert compiled(text, AMPS).truth(Given(BODY)) is answer


@pytest.mark.parametrize(
    "text, answer",
    [
        ("empty = ''", True),
        ("empty IS NULL", False),
        ("flag = 1", False),
        ("flag <> 1", True),
        ("flag = TRUE", True),
        ("flag = 'true'", False),
        ("number = '5'", False),
        ("number <> '5'", True),
        ("number < text", False),
        ("text < other", None),
        ("text + 1 > 0", None),
        ("'5' + 1 = 6", None),
        ("number", False),
        ("missing", None),
        ("NOT missing", None),
        ("number LIKE '5'", False),
        ("missing LIKE '5'", None),
        ("text LIKE 'a_c'", True),
        ("lines LIKE 'one%two'", True),
        ("text LIKE '%b%'", True),
        ("text LIKE '%'", True),
        ("text LIKE 'a%b%c%c'", False),
        ("text LIKE 'ab%bc'", False),
        ("text LIKE '%c%a%'", False),
        ("text LIKE 'ab'", False),
        ("text LIKE ''", False),
        ("empty LIKE ''", True),
        ("percent LIKE '!%%' ESCAPE '!'", True),
        ("text LIKE 'a!bc' ESCAPE '!'", True),
        ("text MATCHES '^a.c$'", True),
        ("convert_string_expressions:digits > 20", True),
        ("convert_string_expressions:text > 20", False),
        ("convert_string_expressions:text <> 20", True),
        ("convert_string_expressions:digits > '20'", None),
        ("convert_string_expressions:digits + 1 = 22", True),
        ("JMSTimestamp = 1000", True),
        ("AMQTimestamp = 1000", True),
        ("JMSMessageID = 'm' AND JMSCorrelationID = 'c' AND JMSType = 't' AND AMQUserID = 'u'", True),
        ("JMSPriority IS NULL", True),
        ("JMSDeliveryMode = 'NON_PERSISTENT' AND AMQDurable = 'NON_DURABLE'", True),
        ("JMSXGroupID = 'g' AND AMQGroupID = 'g'", True),
        ("AMQExpiration = 60000", True),
        ("AMQSize = 4", True),
        ("AMQPriority = 4", True),
        ("HQSize = 4 AND HQExpiration = 60000 AND HQUserID = 'u' AND HQPriority = 4", True),
        ("AMQAddress = 'key'", True),
        ("ROUTING_KEY() = 'key'", True),
        ("array = 2", True),
    ],
)
def test_answers_of_selectors(text: str, answer: bool | None) -> None:
    """The other dialect: strings stay strings, empty ones are values, and only booleans are true."""
    headers: dict[str, Any] = {"empty": "", "flag": True, "number": 5, "text": "abc", "other": "b", "percent": "%x"}
    headers |= {"lines": "one\nand\ntwo", "digits": "21", "_AMQ_GROUP_ID": "g", "array": [1, 2]}
    properties: dict[str, int | str] = {"timestamp": 1, "message_id": "m", "correlation_id": "c", "type": "t"}
    properties |= {"user_id": "u", "expiration": "60000"}
    subject = Given(b"body", routing_key="key", headers=headers, properties=properties)
    assert compiled(text, JMS).truth(subject) is answer


def test_a_body_is_read_once_for_all_filters() -> None:
    """And not at all where nothing asks for it (queues page B.5)."""
    subject = Given(b'{"a":1}')
    for number in range(50):
        compiled(f"/a = {number} OR /b/c = {number} OR /d[0] IS NULL", AMPS).truth(subject)
    assert subject.reads == 1
    other = Given(b'{"a":1}', routing_key="k")
    assert compiled("ROUTING_KEY() = 'k' OR /a = 1", AMPS).matches(other)
    assert not other.reads
    assert compiled("/a", AMPS).reads_body and not compiled("a", AMPS).reads_body


def test_if_is_lazy() -> None:
    """The other branch is not asked (conflict K7)."""
    subject = Given(b'{"a":1}')
    assert compiled("IF(1 = 1, 1, /a) = 1 AND COALESCE('x', /a) = 'x'", AMPS).matches(subject)
    assert not subject.reads


@pytest.mark.parametrize("text", ["/s LIKE '%y'", "/s NOT LIKE '%y'", "NOT /s LIKE r'y'"])
def test_a_text_that_is_too_long_for_patterns_has_no_answer(text: str) -> None:
    """It is selected by none: neither by the pattern nor by its opposite."""
    body = b'{"s": "%s"}' % (b"x" * (64 * 1024 + 1))
    assert compiled(text, AMPS).truth(Given(body)) is None


@pytest.mark.parametrize(
    "body",
    [b'\xef\xbb\xbf{"a": 1}', b'{"a": 1, "b": ' + b"1" * 5000 + b"}", b'{"a": 1, "b": -' + b"1" * 400 + b"}"],
    ids=["byte order mark", "digits", "a number beyond all floats"],
)
def test_a_body_that_is_odd_elsewhere(body: bytes) -> None:
    """Its other fields are read; an integer that no float can hold has its sign."""
    subject = Given(body)
    assert compiled("/a", AMPS).value(subject) == 1
    assert b'"b": -' not in body or compiled("/b + 0", AMPS).value(subject) == -math.inf


def test_names_of_messages_that_lack_what_they_stand_for() -> None:
    """Without an expiration it is 0; an exchange is the address; of two names of a group that of JMS counts."""
    assert compiled("AMQExpiration = 0", JMS).truth(Given()) is True
    assert compiled("AMQAddress = 'orders'", JMS).truth(Given(exchange="orders", routing_key="eu")) is True
    both = Given(headers={"JMSXGroupID": "a", "_AMQ_GROUP_ID": "b"})
    assert compiled("AMQGroupID = 'a' AND JMSXGroupID = 'a'", JMS).truth(both) is True


def test_an_integer_beyond_64_bits_is_a_float_also_as_text() -> None:
    """As in comparisons and in arithmetic (queues page B.2, choice 7)."""
    subject = Given(b'{"n": 9223372036854775807, "m": 36893488147419103232}')
    assert compiled("CONCAT(/n)", AMPS).value(subject) == "9223372036854775807"
    assert compiled("CONCAT(/m)", AMPS).value(subject) == "3.6893488147419103e+19"
