"""XML as a small tree with line numbers. Document types, entities, and documents that are too large are refused.

The parser is the standard library's expat, which expands nothing if there are no declarations.
"""

import re
from dataclasses import dataclass, field
from xml.parsers import expat

DEPTH_MAX = 32
ELEMENTS_MAX = 100_000
TEXT_MAX = 65_536  # characters of one attribute, or of one element's text

#: The dots that documentation writes for omitted parts of an example.
ELLIPSIS = "'...' is not XML but stands for an omitted part of an example, expected that part, or nothing"
_DOTS_IN_TAG = re.compile(r"<[^<>!?][^<>]*?(\.\.\.|\u2026)")


class XmlFault(ValueError):
    """The text is not XML, or XML of a kind that is refused."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


@dataclass(slots=True)
class Element:
    """One element. `name` and attribute names are without namespace; attributes of other namespaces are dropped.

    `file`: of an element that another file includes; empty: the file that is read.
    """

    name: str
    namespace: str
    line: int
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    text: str = ""
    file: str = ""

    @property
    def value(self) -> str:
        """The text without surrounding space."""
        return self.text.strip()


def parse_xml(content: str, elements_max: int = ELEMENTS_MAX) -> tuple[Element, int]:
    """The root element, and the number of elements. Raises: XmlFault."""
    builder = _Builder(elements_max)
    try:
        builder.parser.Parse(content.encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        if (dots := _DOTS_IN_TAG.search(content)) is not None:
            raise XmlFault(content.count("\n", 0, dots.start(1)) + 1, ELLIPSIS) from None
        raise XmlFault(error.lineno, f"not well-formed: {expat.ErrorString(error.code)}") from None
    assert builder.root is not None  # expat refuses a document without a root
    if builder.encoding is not None and builder.encoding.lower() not in _UTF8 and not content.isascii():
        raise XmlFault(1, f"says it is {builder.encoding[:40]!r}, expected UTF-8")
    return builder.root, builder.count


_UTF8 = ("utf-8", "utf8", "us-ascii")


class _Builder:
    def __init__(self, elements_max: int) -> None:
        self.elements_max = elements_max
        self.count = 0
        self.root: Element | None = None
        self.encoding: str | None = None
        self.parser = expat.ParserCreate("utf-8", " ")
        self._open: list[Element] = []
        parser = self.parser
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = self._entity
        parser.ExternalEntityRefHandler = self._external
        parser.SkippedEntityHandler = self._external

    def _refuse(self, problem: str) -> XmlFault:
        return XmlFault(self.parser.CurrentLineNumber, problem)

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        self.encoding = encoding

    def _doctype(self, *_: object) -> None:
        raise self._refuse("document types (DOCTYPE) are refused")

    def _entity(self, *_: object) -> None:
        raise self._refuse("entity declarations are refused")

    def _external(self, *_: object) -> int:
        raise self._refuse("entities from outside are refused")

    def _start(self, qualified: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > self.elements_max:
            raise self._refuse(f"more than {ELEMENTS_MAX} elements")
        if len(self._open) >= DEPTH_MAX:
            raise self._refuse(f"nested deeper than {DEPTH_MAX}")
        for value in attributes.values():
            if len(value) > TEXT_MAX:
                raise self._refuse(f"an attribute of more than {TEXT_MAX} characters")
        namespace, _, name = qualified.rpartition(" ")
        own = {key: value for key, value in attributes.items() if " " not in key}
        element = Element(name, namespace, self.parser.CurrentLineNumber, own)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, qualified: str) -> None:
        self._open.pop()

    def _characters(self, characters: str) -> None:
        element = self._open[-1]
        if len(element.text) + len(characters) > TEXT_MAX:
            if characters.isspace():  # of a long file, between its elements
                return
            raise self._refuse(f"more than {TEXT_MAX} characters of text in <{element.name[:40]}>")
        element.text += characters
