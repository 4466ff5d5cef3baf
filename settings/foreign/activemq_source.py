"""One file of ActiveMQ during loading: checks of elements, and settings from attributes. Source: queues page H.3."""

from collections.abc import Iterable, Mapping

from ..declared.declarations import QueueDeclaration
from ..files.builder import RawEntry
from ..rows.address_settings import BY_KEY
from .activemq_names import Attribute
from .xml_source import XmlSource
from .xml_tree import Element


class ActivemqSource(XmlSource):
    """A file, and the builder that collects faults and declarations."""

    def inner(self, outer: Element) -> Element:
        """The child of the same name, or without one the element itself.

        ActiveMQ writes a property and the object in it as elements, often with the same name.
        """
        self.refuse_text(outer)
        inside = [child for child in outer.children if child.name == outer.name]
        if not inside:
            return outer
        self.attributes(outer, ())
        self.refuse_text(inside[0])
        for child in outer.children:
            if child is not inside[0]:
                self.fault(child, child.name, f"expected a single <{outer.name}> in <{outer.name}>")
        return inside[0]

    def only_child(self, element: Element, known: Iterable[str]) -> Element | None:
        """The single element inside. None, with a fault: it is unknown, or there is not exactly one."""
        self.refuse_text(element)
        self.attributes(element, ())
        for child in element.children:
            if child.name not in known:
                self.unknown(child, child.name, f"<{element.name}>", known)
                return None
        if len(element.children) != 1:
            expected = ", ".join(f"<{name}>" for name in known)
            self.fault(element, element.name, f"holds {len(element.children)} elements, expected {expected}")
            return None
        self.refuse_text(element.children[0])
        return element.children[0]

    def read_attributes(
        self, element: Element, known: Mapping[str, Attribute], ignored: Iterable[str] = ()
    ) -> dict[str, tuple[object, str]]:
        """Read attributes. Returns: key of each address-setting that one of them sets -> (value, attribute).

        `ignored`: names of attributes that set nothing and need no warning about that.
        """
        given: dict[str, tuple[object, str]] = {}
        for name, text in element.attributes.items():
            attribute = known.get(name)
            if attribute is None:
                self.unknown(element, name, f"<{element.name}>", known)
                continue
            try:
                value = attribute.read(text)
            except ValueError as error:
                self.invalid(element, f"{element.name}/{name}", text, error)
                continue
            if attribute.key and value is not None:
                given[attribute.key] = value, name
            elif not attribute.key and name not in ignored:
                self.no_effect(element, name)
        return given

    def set(self, raw: RawEntry, element: Element, key: str, value: object, name_in_file: str) -> None:
        """Set an address-setting of the entry. `name_in_file`: the name of its element or attribute."""
        self.builder.set_field(raw, self.origin_of(element), name_in_file, BY_KEY[key], value, as_text=False)

    def names_of(self, element: Element, kind: str) -> list[str]:
        """The destinations in the attribute `kind` (`queue` or `topic`), separated by commas, without `KIND://`.

        If there are none: one empty name, which is refused later.
        """
        names = [name.strip().removeprefix(f"{kind}://") for name in element.attributes[kind].split(",")]
        return [name for name in names if name] or [""]

    def declare_queue(self, element: Element, name: str) -> None:
        """Declare a queue, unless the configuration declares one of this name already."""
        if ("/", name) not in self.builder.queues:
            self.builder.add_queue(QueueDeclaration(name, name, origin=self.origin_of(element)), {})
