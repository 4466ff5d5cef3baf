"""XML configurations: of Artemis and HornetQ, ActiveMQ 5, or AMPS, recognised by their root. Source: ruling 18."""

from ..faults import Origin
from .activemq_names import ACTIVEMQ_ROOTS
from .activemq_xml import load_activemq
from .amps_names import AMPS_ROOTS
from .amps_xml import load_amps
from .artemis_xml import load_artemis
from .draft import Draft
from .xml_tree import XmlFault, parse_xml


def load_xml(draft: Draft, file: str, content: str) -> None:
    """Read one file into the draft."""
    try:
        root = parse_xml(content)
    except XmlFault as error:
        draft.fault(Origin(file, error.line), "XML", error.problem)
        return
    load = load_activemq if root.name in ACTIVEMQ_ROOTS else load_amps if root.name in AMPS_ROOTS else load_artemis
    load(draft, file, root)
