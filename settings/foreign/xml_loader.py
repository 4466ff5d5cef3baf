"""XML configurations: of Artemis and HornetQ, ActiveMQ 5, or AMPS, recognised by their root. Source: ruling 18."""

from ..faults import Origin
from ..files.builder import ConfigurationBuilder
from ..files.file_hooks import xml_formats
from .activemq import ACTIVEMQ_ROOTS, load_activemq
from .artemis import load_artemis
from .artemis_names import BOOTSTRAP, BOOTSTRAP_FILE, OTHER_FILES
from .xml_tree import Element, XmlFault, parse_xml

INSTEAD = "expected broker.xml, hornetq-configuration.xml, hornetq-jms.xml, activemq.xml, or a configuration of AMPS"


def load_xml(builder: ConfigurationBuilder, file: str, content: str) -> None:
    """Read one file into the builder."""
    try:
        root, _ = parse_xml(content)
    except XmlFault as error:
        builder.fault(Origin(file, error.line), "XML", error.problem)
        return
    if (other := _other_file(root)) is not None:
        builder.fault(Origin(file, _line_of_messaging(root)), root.name, f"this is {other}; {INSTEAD}")
        return
    load = load_activemq if root.name in ACTIVEMQ_ROOTS else xml_formats().get(root.name, load_artemis)
    load(builder, file, root)


def _other_file(root: Element) -> str | None:
    """The description of a file that belongs to such a broker and is not read; None: the file may be read."""
    if root.namespace == BOOTSTRAP:
        return BOOTSTRAP_FILE
    if root.name == "configuration":
        return next((OTHER_FILES[child.name] for child in root.children if child.name in ("user", "defaultuser")), None)
    return OTHER_FILES.get(root.name)


def _line_of_messaging(root: Element) -> int:
    """The position of the broker in WildFly's file; else the beginning of the file."""
    inside = [one for child in root.children for one in (child, *child.children)]
    return next((one.line for one in inside if one.name == "subsystem" and "messaging" in one.namespace), root.line)
