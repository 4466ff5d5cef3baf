"""Names in AMPS' configuration files: what is read, and what means nothing here. Source: queues page A.3, H.1."""

from ..leased.elements import BY_TAG, NAME, SYNONYMS, TAGS

#: Sections of the whole file that are read.
SECTIONS = ("AMPSConfig", "SOW", "TransactionLog", "Actions")
#: What says which instance this is.
IDENTITY = ("Name", "Group")
#: What stands beside them; others, that are not spelled almost like something that is read, are skipped as well.
OTHER_SECTIONS = frozenset(
    ("Admin", "Authentication", "Entitlement", "Extensions", "Logging", "MessageTypes", "Modules", "Protocols")
    + ("Replication", "Transports", "Tuning")
)
#: What `SOW` holds beside queues, as far as it looks like something that is read.
SOW_OTHERS = frozenset(("Topic", "TopicDefinition", "View", "ViewDefinition", "ConflatedTopic"))

#: Of `TransactionLog`, beside `Topic`: why it means nothing here; empty: it is read.
LOG_SETTINGS = {
    "JournalDirectory": "[broker] data says where the journal is",
    "JournalArchiveDirectory": "segments that nobody needs are deleted, or kept as [journal] retain says",
    "PreallocatedJournalFiles": "[journal] reserve keeps space for what must not fail on a full disk",
    "JournalSize": "",
}

QUEUE_TAGS = tuple(TAGS)
#: All that a queue may hold.
QUEUE_CHILDREN = (NAME, *SYNONYMS, *BY_TAG)

#: Elements that an AMPS file, or a part of one, may begin with. Those of a queue are refused without it.
AMPS_ROOTS = frozenset((*SECTIONS, *QUEUE_TAGS, *OTHER_SECTIONS, *SOW_OTHERS, *QUEUE_CHILDREN))

EXPIRED_MODULE = "amps-action-on-sow-expire-message"
PUBLISH_MODULE = "amps-action-do-publish-message"
