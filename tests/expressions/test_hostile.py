"""Bodies that somebody made to hurt: no JSON, or with an answer like any other. Source: queues page A.3.1."""

import json

import pytest
from expression_rows import Given

from leveret.expressions.language import AMPS, compiled
from leveret.expressions.subject import DOCUMENT_DEPTH_MAX, DOCUMENT_OCTETS_MAX


@pytest.mark.parametrize(
    "body, is_readable",
    [
        (b'{"a":1}', True),
        (b' \n{"a":1}\t', True),
        (b'\xef\xbb\xbf{"a":1}', True),
        (b"[" * DOCUMENT_DEPTH_MAX + b"]" * DOCUMENT_DEPTH_MAX, True),
        (b"[" * (DOCUMENT_DEPTH_MAX + 1) + b"]" * (DOCUMENT_DEPTH_MAX + 1), False),
        (b'{"a":' * DOCUMENT_DEPTH_MAX + b"1" + b"}" * DOCUMENT_DEPTH_MAX, True),
        (b'{"a":' * (DOCUMENT_DEPTH_MAX + 1) + b"1" + b"}" * (DOCUMENT_DEPTH_MAX + 1), False),
        (b"[" * 100_000 + b"]" * 100_000, False),
        (b"[" * 100_000, False),
        (b'{"a":' * 100_000, False),
        (b'["' + b"[" * 10_000 + b'"]', True),
        (b"[" + b"{}," * 10_000 + b"1]", True),
        (b'{"a":' + b"9" * 100_000 + b"}", True),
        (b'{"a":-' + b"9" * 100_000 + b"}", True),
        (b'{"a":1e999999999}', True),
        (b'{"a":NaN}', True),
        (b'"\\ud800"', True),
        (b'{"a":"\\ud800\\ud800"}', True),
        (b'{"a":1,"a":2}', True),
        (b'{"a":1}x', False),
        (b"{'a':1}", False),
        (b'{"a":01}', False),
        (b'{"a":"\xff"}', False),
        (b'{"a":"\xed\xa0\x80"}', False),
        (b"\x00\x00\x00", False),
        ('{"a":1}'.encode("utf-16"), False),
        (b"", False),
        (b'"' + b"a" * (DOCUMENT_OCTETS_MAX - 2) + b'"', True),
        (b'"' + b"a" * (DOCUMENT_OCTETS_MAX - 1) + b'"', False),
    ],
)
def test_bodies(body: bytes, is_readable: bool) -> None:
    """Read or not, every expression has an answer; what is not read has no paths."""
    subject = Given(body)
    for text in ("/a = 1", "/a/a/a > 'x' OR /b LIKE 'x'", "/a[0] IS NULL", "UPPER(/a) = 'X'", "/a + 1 = 2"):
        answer = compiled(text, AMPS).truth(subject)
        assert answer is None or isinstance(answer, bool)
    assert (subject.document is not None) is is_readable
    if not is_readable:
        assert compiled("/a IS NULL", AMPS).matches(subject)


@pytest.mark.parametrize(
    "body, text, answer",
    [
        ('{"a":1,"a":2}', "/a = 2", True),
        ('{"a":1,"a":2}', "/a = 1", False),
        ('{"a":' + "9" * 5000 + "}", "/a > 1e300", True),
        ('{"a":' + "9" * 5000 + ',"b":1.5}', "/b = 1.5", True),
        ('{"a":-' + "9" * 5000 + "}", "/a < 0", True),
        ('{"a":1e999}', "/a > 1e308", True),
        ('{"a":NaN}', "/a IS NAN", True),
        ('{"a":"\\ud800"}', "LENGTH(/a) = 1 AND /a > 'x' AND MD5(/a) IS NOT NULL", True),
        ('{"a":"\\ud83d\\udc07"}', "LENGTH(/a) = 1", True),
        ('{"":1}', "/a IS NULL", True),
        ('{"a":"\\u0000"}', "LENGTH(/a) = 1", True),
        ('[{"a":1},{"a":2}]', "/a = 2", True),
        ('"a"', "/a IS NULL", True),
        ("null", "/a IS NULL", True),
        ("12", "/a IS NULL", True),
    ],
)
def test_what_odd_bodies_say(body: str, text: str, answer: bool) -> None:
    """Of a name that is there twice the last one counts; numbers too large are infinite; surrogates are characters."""
    assert compiled(text, AMPS).truth(Given(body.encode())) is answer


def test_a_large_array_is_read_in_time() -> None:
    """Each element is charged: comparing one with one of many is unknown when it takes too long, not before."""
    body = json.dumps({"a": list(range(100_000))}).encode()
    assert compiled("/a = 99999", AMPS).truth(Given(body)) is True
    assert compiled("/a = /a", AMPS).truth(Given(body)) is True
    assert compiled("/a = -1 OR /a = -2", AMPS).truth(Given(body)) is False
