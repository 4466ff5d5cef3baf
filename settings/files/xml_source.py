"""One XML configuration file while it is read: where its elements are, their attributes, children and values."""

from collections.abc import Iterable
from typing import Any

from ..faults import Origin
from ..values import Kind
from .draft import Draft
from .xml_tree import Element


class XmlSource:
    """A file, and the draft that collects faults and declarations."""

    def __init__(self, draft: Draft, file: str) -> None:
        self.draft = draft
        self.file = file

    def at(self, element: Element) -> Origin:
        """Where an element begins."""
        return Origin(element.file or self.file, element.line)

    def each_once(self, element: Element, repeatable: Iterable[str] = ()) -> list[Element]:
        """The children; a repeated one of a name that is allowed once is a fault, and skipped."""
        seen: set[str] = set()
        children: list[Element] = []
        for child in element.children:
            if child.name in seen and child.name not in repeatable:
                self.draft.fault(self.at(child), child.name, f"is given twice in <{element.name}>")
                continue
            seen.add(child.name)
            children.append(child)
        return children

    def attributes(self, element: Element, known: tuple[str, ...], ignore: tuple[str, ...] = ()) -> None:
        """Unknown attributes are faults."""
        for key in element.attributes:
            if key not in known and key not in ignore:
                self.draft.unknown(self.at(element), key, f"<{element.name}>", known)

    def value(self, key: str, text: str, kind: Kind, origin: Origin, default: Any) -> Any:
        """A value of some kind; the default, with a fault, when it is invalid."""
        try:
            return kind.read_text(text)
        except ValueError as error:
            self.draft.wrong(origin, key, text, error)
            return default
