"""What happens to a world: each fault by its name. All that is random in one comes from its own chance.

Whatever a fault does ends by itself, within `LONGEST_S`, so that everything can come to rest afterwards.
"""

from .disk import DISK_FAULTS
from .messages import MESSAGE_FAULTS
from .network import NETWORK_FAULTS
from .operators import OPERATOR_FAULTS
from .process import PROCESS_FAULTS
from .sites import SITE_FAULTS
from .victim import Fault

FAULTS: dict[str, Fault] = {
    **PROCESS_FAULTS,
    **DISK_FAULTS,
    **NETWORK_FAULTS,
    **OPERATOR_FAULTS,
    **MESSAGE_FAULTS,
    **SITE_FAULTS,
}
