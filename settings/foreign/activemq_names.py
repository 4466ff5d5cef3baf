"""Names and values in ActiveMQ 5's XML: those that correspond to our keys, and those without a counterpart.

Readers take the text of an attribute and raise ValueError with the expected form. Source: queues page H.3, "sizes",
"booleans", "percent"; the setters of ActiveMQ's BrokerService and PolicyEntry.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..values import INT_MAX, LONG_MAX, integer, number, parse_integer, parse_number

TextReader = Callable[[str], object]

_SIZE = re.compile(r"\s*([0-9]{1,19})\s*(?:([KMG])?B?)\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3}
_FLAGS = {"true": True, "false": False}


def size(content: str) -> int:
    """Octets: "64 mb", "512 KB", "1g", "1048576"; in powers of 1024."""
    if match := _SIZE.fullmatch(content):
        octets: int = int(match[1]) * 1024 ** _POWERS[(match[2] or "").upper()]
        if octets <= LONG_MAX:
            return octets
    raise ValueError('a size: octets, or a whole number of them with b, kb, mb or gb, such as "64 mb"')


def flag(content: str) -> bool:
    """true or false, ignoring case. Raises: ValueError."""
    try:
        return _FLAGS[content.strip().lower()]
    except KeyError:
        raise ValueError("true or false") from None


def flag_or_unset(content: str) -> bool | None:
    """true or 1, false or 0; -1: None."""
    known = {**_FLAGS, "1": True, "0": False, "-1": None}
    try:
        return known[content.strip().lower()]
    except KeyError:
        raise ValueError("true, false, or -1 for that of <systemUsage>") from None


def _integer(low: int, high: int) -> TextReader:
    read = integer(low, high)
    return lambda content: read(parse_integer(content))


milliseconds = _integer(0, LONG_MAX)
milliseconds_or_off = _integer(-1, LONG_MAX)
period = _integer(1, LONG_MAX)
count = _integer(0, INT_MAX)
count_or_off = _integer(-1, INT_MAX)
limit = _integer(-1, LONG_MAX)
percent = _integer(1, 100)
whole_number = _integer(-LONG_MAX - 1, LONG_MAX)


def milliseconds_or_unset(content: str) -> object:
    """Milliseconds; -1: None."""
    value = milliseconds_or_off(content)
    return None if value == -1 else value


def multiplier(content: str) -> float:
    """A number from 0."""
    try:
        value: float = number(0, math.inf)(parse_number(content))
        return value
    except ValueError:
        raise ValueError("a number from 0") from None


def any_name(content: str) -> str:
    """Any text that is not empty."""
    if content.strip():
        return content.strip()
    raise ValueError("a name")


def anything(content: str) -> str:
    """Any text, for attributes without a counterpart."""
    return content


@dataclass(slots=True, frozen=True)
class Attribute:
    """An attribute. `key`: the address-setting that it gives; empty: none, but its value is checked."""

    key: str
    read: TextReader


def ignored(read: TextReader) -> Attribute:
    """An attribute without a counterpart, whose value is checked."""
    return Attribute("", read)


@dataclass(slots=True, frozen=True)
class Choice:
    """An element that may be chosen in a child of policyEntry. `gives`: the address-settings that the choice sets."""

    gives: Mapping[str, object] = field(default_factory=dict)
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    required: str = ""  # the attribute that must be there


_ADVISORIES = """
advisoryForConsumed advisoryForDelivery advisoryForDiscardingMessages advisoryForDispatched advisoryForFastProducers
advisoryForSlowConsumers advisoryWhenFull sendAdvisoryIfNoConsumers includeBodyForAdvisory
"""

_ENTRY_ATTRIBUTES = """
advancedMessageStatisticsEnabled advancedNetworkStatisticsEnabled advisdoryForFastProducers
allowTempDestinationStealing alwaysRetroactive doOptimizeMessageStorage doOptimzeMessageStorage durableTopicPrefetch
enableAudit gcWithNetworkConsumers gcWithOnlyWildcardConsumers id inactiveTimoutBeforeGC lazyDispatch maxAuditDepth
maxDestinations maxExpirePageSize maxProducersToAudit maxQueueAuditDepth messageGroupHashBucketCount
messageGroupMapFactoryType optimizedDispatch optimizeMessageStoreInFlightLimit persistJMSRedelivered
queueBrowserPrefetch reduceMemoryFootprint sendDuplicateFromStoreToDLQ strictOrderDispatch useCache
useConsumerPriority usePrefetchExtension useTopicSubscriptionInflightStats
"""

_ENTRY_CHILDREN = """
dispatchPolicy subscriptionRecoveryPolicy networkBridgeFilterFactory messageGroupMapFactory
messageInterceptorStrategy destination
"""

_BROKER_CHILDREN = """
adminView brokerContext cacheTempDestinations consumerSystemUsage destinationFactory ioExceptionHandler
jmsBridgeConnectors jobSchedulerStore locker managementContext memoryManager messageAuthorizationPolicy
networkConnectors networkConnectorURIs pendingDurableSubscriberPolicy persistenceAdapter persistenceFactory
persistenceTaskRunnerFactory producerSystemUsage proxyConnectors regionBroker services shutdownHooks sslContext
taskRunnerFactory tempDataStore transportConnectors transportConnectorURIs vmConnectorURI
"""

_BROKER_ATTRIBUTES = """
adjustUsageLimits advisorySupport allowTempAutoCreationOnSend anonymousProducerAdvisorySupport brokerId brokerName
brokerObjectName cacheTempDestinations clustered consumerSystemUsagePortion dataDirectory dataDirectoryFile
dedicatedTaskRunner deleteAllMessagesOnStartup destroyApplicationContextOnShutdown destroyApplicationContextOnStop
diskUsageCheckRegrowThreshold enableMessageExpirationOnActiveDurableSubs enableStatistics id keepDurableSubsActive
masterConnectorURI maxInflatedDataSize maxPurgedDestinationsPerSweep maxSchedulerRepeatAllowed maxUncommittedCount
mbeanInvocationTimeout monitorConnectionSplits name networkConnectorStartAsync offlineDurableSubscriberTaskSchedule
offlineDurableSubscriberTimeout passiveSlave persistenceThreadPriority persistent populateJMSXUserID
populateUserNameInMBeans producerSystemUsagePortion rejectDurableConsumers restartAllowed restartRequested
rollbackOnlyOnAsyncException schedulePeriodForDestinationPurge schedulePeriodForDiskUsageCheck schedulerDirectory
schedulerDirectoryFile schedulerSupport shutdownOnMasterFailure shutdownOnSlaveFailure
splitSystemUsageForProducersConsumers start startAsync storeOpenWireVersion supportFailOver systemExitOnShutdown
systemExitOnShutdownExitCode taskRunnerPriority timeBeforePurgeTempDestinations tmpDataDirectory
useAuthenticatedPrincipalForJMSXUserID useJmx useLocalHostBrokerName useLoggingForShutdownErrors useMirroredQueues
useShutdownHook useTempMirroredQueues useVirtualDestSubs useVirtualDestSubsOnCreation useVirtualTopics
virtualThreadTaskRunner vmConnectorURI waitForSlave waitForSlaveTimeout
"""

#: Attributes of <policyEntry>.
ENTRY_ATTRIBUTES: dict[str, Attribute] = {
    "memoryLimit": Attribute("memory-limit", size),
    "producerFlowControl": Attribute("producer-flow-control", flag),
    "cursorMemoryHighWaterMark": Attribute("cursor-memory-high-water-mark", percent),
    "sendFailIfNoSpace": Attribute("send-fail-if-no-space", flag_or_unset),
    "sendFailIfNoSpaceAfterTimeout": Attribute("send-fail-if-no-space-after", milliseconds_or_unset),
    "blockedProducerWarningInterval": Attribute("blocked-producer-warning-interval", milliseconds),
    "minimumMessageSize": Attribute("minimum-message-size", size),
    "queuePrefetch": Attribute("queue-prefetch", count),
    "allConsumersExclusiveByDefault": Attribute("default-exclusive-queue", flag),
    "consumersBeforeDispatchStarts": Attribute("default-consumers-before-dispatch", count),
    "timeBeforeDispatchStarts": Attribute("default-delay-before-dispatch", milliseconds),
    "storeUsageHighWaterMark": ignored(percent),
    "topicPrefetch": ignored(count),
    **dict.fromkeys(("maxPageSize", "maxBrowsePageSize"), ignored(whole_number)),
    **dict.fromkeys(("expireMessagesPeriod", "inactiveTimeoutBeforeGC"), ignored(whole_number)),
    **dict.fromkeys(("prioritizedMessages", "gcInactiveDestinations"), ignored(flag)),
    **dict.fromkeys(_ADVISORIES.split(), ignored(flag)),
    **dict.fromkeys(_ENTRY_ATTRIBUTES.split(), ignored(anything)),
}

#: Attributes that name the destinations of a <policyEntry>.
TARGETS = ("queue", "topic", "tempQueue", "tempTopic")

_ABORT: dict[str, Attribute] = {
    "checkPeriod": Attribute("abort-slow-consumer-check-period", period),
    "abortConnection": Attribute("abort-slow-consumer-connection", flag),
    "ignoreNetworkConsumers": ignored(flag),
    "name": ignored(anything),
}
_ABORT_AFTER_MS = 30_000  # ActiveMQ's default
_EVICTION = {"evictExpiredMessagesHighWatermark": ignored(count), "expiryCheckEnabled": ignored(flag)}

#: Child of <policyEntry> -> element inside -> its settings.
STRATEGIES: dict[str, dict[str, Choice]] = {
    "pendingMessageLimitStrategy": {
        "constantPendingMessageLimitStrategy": Choice(
            {"pending-message-limit": -1}, {"limit": Attribute("pending-message-limit", limit)}
        ),
        "prefetchRatePendingMessageLimitStrategy": Choice(
            {"pending-message-limit-prefetch-rate": 0.5},
            {"multiplier": Attribute("pending-message-limit-prefetch-rate", multiplier)},
        ),
    },
    "messageEvictionStrategy": {
        "oldestMessageEvictionStrategy": Choice({"message-eviction": "oldest"}, _EVICTION),
        "oldestMessageWithLowestPriorityEvictionStrategy": Choice({"message-eviction": "lowest-priority"}, _EVICTION),
        "uniquePropertyMessageEvictionStrategy": Choice(
            {"message-eviction": "unique-property"},
            {**_EVICTION, "propertyName": Attribute("message-eviction-property", any_name)},
            "propertyName",
        ),
    },
    "slowConsumerStrategy": {
        "abortSlowConsumerStrategy": Choice(
            {"abort-slow-consumer-after": _ABORT_AFTER_MS},
            {
                **_ABORT,
                "maxSlowCount": Attribute("abort-slow-consumer-count", count_or_off),
                "maxSlowDuration": Attribute("abort-slow-consumer-after", milliseconds_or_off),
            },
        ),
        "abortSlowAckConsumerStrategy": Choice(
            {"abort-slow-ack-after": _ABORT_AFTER_MS},
            {
                **_ABORT,
                "maxTimeSinceLastAck": Attribute("abort-slow-ack-after", milliseconds_or_off),
                "ignoreIdleConsumers": Attribute("abort-slow-ack-ignores-idle", flag),
                "maxSlowCount": ignored(count_or_off),
                "maxSlowDuration": ignored(milliseconds_or_off),
            },
        ),
    },
    "pendingQueuePolicy": {
        "storeCursor": Choice({"cursor": "store"}),
        "vmQueueCursor": Choice({"cursor": "vm"}),
        "fileQueueCursor": Choice({"cursor": "file"}),
    },
    "pendingSubscriberPolicy": {"vmCursor": Choice({"cursor": "vm"}), "fileCursor": Choice({"cursor": "file"})},
    "pendingDurableSubscriberPolicy": {
        "storeDurableSubscriberCursor": Choice(attributes={"immediatePriorityDispatch": ignored(flag)}),
        "vmDurableCursor": Choice(),
        "fileDurableSubscriberCursor": Choice(),
    },
}

#: Children that act on entries of queues only, or of topics only; the default entry acts on both.
QUEUES_ONLY = frozenset({"pendingQueuePolicy", "deadLetterStrategy"})
TOPICS_ONLY = frozenset({"pendingMessageLimitStrategy", "messageEvictionStrategy", "pendingSubscriberPolicy"})

#: Attributes of <redeliveryPolicy>. They are their own keys: several together make one setting (`activemq_plugins`).
REDELIVERY: dict[str, Attribute] = {
    **{
        name: Attribute(name, read)
        for name, read in {
            "maximumRedeliveries": count_or_off,
            "initialRedeliveryDelay": milliseconds,
            "redeliveryDelay": milliseconds,
            "maximumRedeliveryDelay": milliseconds_or_off,
            "backOffMultiplier": multiplier,
            "useExponentialBackOff": flag,
            "collisionAvoidancePercent": percent,
            "useCollisionAvoidance": flag,
        }.items()
    },
    **dict.fromkeys(("preDispatchCheck", "id"), ignored(anything)),
}

_DEAD_LETTERS = {
    "processExpired": ignored(flag),
    "processNonPersistent": ignored(flag),
    "enableAudit": ignored(flag),
    "maxAuditDepth": ignored(whole_number),
    "maxProducersToAudit": ignored(whole_number),
    "expiration": ignored(whole_number),
}

#: Element inside <deadLetterStrategy> -> its attributes.
DEAD_LETTERS: dict[str, dict[str, Attribute]] = {
    "sharedDeadLetterStrategy": _DEAD_LETTERS,
    "individualDeadLetterStrategy": {
        **_DEAD_LETTERS,
        **dict.fromkeys(("queuePrefix", "queueSuffix", "topicPrefix", "topicSuffix"), ignored(anything)),
        **dict.fromkeys(
            ("useQueueForQueueMessages", "useQueueForTopicMessages", "destinationPerDurableSubscriber"), ignored(flag)
        ),
    },
    "discarding": _DEAD_LETTERS,
}

#: Children of <policyEntry> without a counterpart.
ENTRY_OTHERS = frozenset(_ENTRY_CHILDREN.split())

#: Children of <broker> without a counterpart.
BROKER_OTHERS = frozenset(_BROKER_CHILDREN.split())

#: Attributes of <broker>, all without a counterpart.
BROKER_ATTRIBUTES = frozenset(_BROKER_ATTRIBUTES.split())
