# mypy: implicit-reexport
# ruff: noqa: F401 - imported for others
"""The names that only the journal needs, to record the contents of queues and to restore them after a restart.

No package but the journal imports this file.
"""

from .exchanges.exchange import EXCHANGE_TYPES
from .messages.duplicates import IdCache
from .queues.restore import Restorer, picture_of
from .stores.memory_budget import OVERHEAD
from .stores.paged_index import stretches
from .stores.paged_run import Part, Run
from .stores.topic_log import Entered, LoggedMessage, Page, TopicLog, Wanted
