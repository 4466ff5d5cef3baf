"""Values as Erlang writes them: RabbitMQ's texts have them, and clients and their tests compare whole texts.

`Facts` fills the templates of replies.py: the facts of an error, and the texts that are derived from facts.
Source: behaviour page 0.4, 0.5.
"""

from ..engine import Field, Reason


class Facts(dict[str, object]):
    """The facts of an error, and the few texts that are made of facts."""

    def __init__(self, error: Exception) -> None:
        super().__init__(vars(error))

    def __missing__(self, key: str) -> object:
        return DERIVED_TEXTS[key](self)


def _difference(facts: Facts) -> str:
    received, current = facts["received"], facts["current"]
    if isinstance(received, Field) and isinstance(current, Field):
        return f"received '{_value(received)}' but current is '{_value(current)}'"
    return f"received {_described(received)} but current is {_described(current)}"


def _described(field: object) -> str:
    return f"the value '{_value(field)}' of type '{field.type_name}'" if isinstance(field, Field) else "none"


def _value(field: Field) -> str:
    return field.text if isinstance(field.value, bytes) else _term_of(field)


def _term_of(field: Field) -> str:
    """A value as Erlang writes it; without its line breaks, which come where a text is long."""
    match field.value:
        case bytes():
            return term(field.value)
        case bool():
            return str(field.value).lower()
        case float():
            mantissa, _, exponent = repr(field.value).partition("e")
            return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent)}" if exponent else mantissa
        case tuple():
            return f"{{{field.value[0]},{field.value[1]}}}"
        case list():
            return f"[{','.join(f'{{{item.type_name},{_term_of(item)}}}' for item in field.value)}]"
        case dict():
            items = (f"{{{term(k.encode())},{v.type_name},{_term_of(v)}}}" for k, v in field.value.items())
            return f"[{','.join(items)}]"
        case None:
            return "undefined"
        case number:
            return str(number)


def _reason(facts: Facts) -> str:
    reason = facts["reason"]
    assert isinstance(reason, Reason)
    if reason.kind == "type":
        return f'"expected integer, got {reason.word}"'
    if reason.kind == "unacceptable":
        return f"{{unacceptable_type,{reason.word}}}"
    if reason.kind == "text":
        return f'"{reason.word}"'
    return f"{{{reason.word},{reason.value}}}" if reason.kind == "tuple" else reason.word


def _octets(facts: Facts) -> str:
    payload = facts["payload"]
    assert isinstance(payload, bytes)
    if len(payload) <= 16:
        return f"all octets = {term(payload)}"
    return f"first 16 octets = {term(payload[:16])}"


def _arguments_term(facts: Facts) -> str:
    return term(_bytes(facts["arguments"]))


def _value_term(facts: Facts) -> str:
    return term(_bytes(facts["value"]))


def _field_term(facts: Facts) -> str:
    field = facts["field"]
    assert isinstance(field, Field)
    return _term_of(field)


def _weight_fault(facts: Facts) -> str:
    if facts["is_integer"]:
        return "The binding key must be greater than 0"
    return f"The binding key must be an integer: {term(_bytes(facts['value']))}"


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


DERIVED_TEXTS = {
    "difference": _difference,
    "reason_text": _reason,
    "octets": _octets,
    "octets_term": _arguments_term,
    "value_term": _value_term,
    "field_term": _field_term,
    "weight_fault": _weight_fault,
}

_PRINTABLE = frozenset([*range(32, 127), *range(160, 256), 9, 10, 13])


def term(octets: bytes) -> str:
    """Octets as texts spell them: quoted when all are printable Latin-1, else as numbers."""
    if octets and all(octet in _PRINTABLE for octet in octets):
        return f'<<"{octets.decode("latin-1")}">>'
    return f"<<{','.join(map(str, octets))}>>"
