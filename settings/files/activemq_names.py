"""Names in ActiveMQ 5's XML: which of our keys they give values to, and which mean nothing here.

Source: queues page H.3; the setters of ActiveMQ's BrokerService and PolicyEntry.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .activemq_values import (
    TextReader,
    anything,
    count,
    count_or_off,
    flag,
    flag_or_unset,
    limit,
    milliseconds,
    milliseconds_or_off,
    milliseconds_or_unset,
    multiplier,
    name,
    percent,
    period,
    size,
    whole_number,
)


@dataclass(slots=True, frozen=True)
class Attribute:
    """`key`: the address-setting that it gives; empty: it means nothing here, but its value is checked."""

    key: str
    read: TextReader


@dataclass(slots=True, frozen=True)
class Choice:
    """One of the elements that a policyEntry's child may hold. `gives`: address-setting -> value."""

    gives: Mapping[str, object] = field(default_factory=dict)
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    required: str = ""  # an attribute


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
    "storeUsageHighWaterMark": Attribute("", percent),
    "topicPrefetch": Attribute("", count),
    **dict.fromkeys(("maxPageSize", "maxBrowsePageSize"), Attribute("", whole_number)),
    **dict.fromkeys(("expireMessagesPeriod", "inactiveTimeoutBeforeGC"), Attribute("", whole_number)),
    **dict.fromkeys(("prioritizedMessages", "gcInactiveDestinations"), Attribute("", flag)),
    **dict.fromkeys(
        _ADVISORIES.split(),
        Attribute("", flag),
    ),
    **dict.fromkeys(
        _ENTRY_ATTRIBUTES.split(),
        Attribute("", anything),
    ),
}

#: What names the destinations of a <policyEntry>.
TARGETS = ("queue", "topic", "tempQueue", "tempTopic")

_ABORT: dict[str, Attribute] = {
    "checkPeriod": Attribute("abort-slow-consumer-check-period", period),
    "abortConnection": Attribute("abort-slow-consumer-connection", flag),
    "ignoreNetworkConsumers": Attribute("", flag),
    "name": Attribute("", anything),
}
_DEFAULT_MS = 30_000
_EVICTION = {"evictExpiredMessagesHighWatermark": Attribute("", count), "expiryCheckEnabled": Attribute("", flag)}

#: Child of <policyEntry> -> element inside -> what it gives.
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
            {**_EVICTION, "propertyName": Attribute("message-eviction-property", name)},
            "propertyName",
        ),
    },
    "slowConsumerStrategy": {
        "abortSlowConsumerStrategy": Choice(
            {"abort-slow-consumer-after": _DEFAULT_MS},
            {
                **_ABORT,
                "maxSlowCount": Attribute("abort-slow-consumer-count", count_or_off),
                "maxSlowDuration": Attribute("abort-slow-consumer-after", milliseconds_or_off),
            },
        ),
        "abortSlowAckConsumerStrategy": Choice(
            {"abort-slow-ack-after": _DEFAULT_MS},
            {
                **_ABORT,
                "maxTimeSinceLastAck": Attribute("abort-slow-ack-after", milliseconds_or_off),
                "ignoreIdleConsumers": Attribute("abort-slow-ack-ignores-idle", flag),
                "maxSlowCount": Attribute("", count_or_off),
                "maxSlowDuration": Attribute("", milliseconds_or_off),
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
        "storeDurableSubscriberCursor": Choice(attributes={"immediatePriorityDispatch": Attribute("", flag)}),
        "vmDurableCursor": Choice(),
        "fileDurableSubscriberCursor": Choice(),
    },
}

#: Which entries a child acts on: those of queues or those of topics; the default entry acts on both.
QUEUES_ONLY = frozenset({"pendingQueuePolicy", "deadLetterStrategy"})
TOPICS_ONLY = frozenset({"pendingMessageLimitStrategy", "messageEvictionStrategy", "pendingSubscriberPolicy"})

#: Attributes of <redeliveryPolicy>; the keys are what `activemq_plugins` calls them.
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
    **dict.fromkeys(("preDispatchCheck", "id"), Attribute("", anything)),
}

_DEAD_LETTERS = {
    "processExpired": Attribute("", flag),
    "processNonPersistent": Attribute("", flag),
    "enableAudit": Attribute("", flag),
    "maxAuditDepth": Attribute("", whole_number),
    "maxProducersToAudit": Attribute("", whole_number),
    "expiration": Attribute("", whole_number),
}

#: Element inside <deadLetterStrategy> -> its attributes.
DEAD_LETTERS: dict[str, dict[str, Attribute]] = {
    "sharedDeadLetterStrategy": _DEAD_LETTERS,
    "individualDeadLetterStrategy": {
        **_DEAD_LETTERS,
        **dict.fromkeys(("queuePrefix", "queueSuffix", "topicPrefix", "topicSuffix"), Attribute("", anything)),
        **dict.fromkeys(
            ("useQueueForQueueMessages", "useQueueForTopicMessages", "destinationPerDurableSubscriber"),
            Attribute("", flag),
        ),
    },
    "discarding": _DEAD_LETTERS,
}

#: Children of <policyEntry> that mean nothing here.
ENTRY_OTHERS = frozenset(_ENTRY_CHILDREN.split())

#: Children of <broker> that mean nothing here.
BROKER_OTHERS = frozenset(_BROKER_CHILDREN.split())

#: Attributes of <broker>: none of them means anything here.
BROKER_ATTRIBUTES = frozenset(_BROKER_ATTRIBUTES.split())

#: What takes part, and what is known to take none: each may be the root of a fragment (ruling 18).
STRUCTURES = (
    *("beans", "broker", "destinationPolicy", "policyMap", "policyEntries", "policyEntry", "defaultEntry"),
    *("systemUsage", "memoryUsage", "storeUsage", "tempUsage"),
    *("plugins", "redeliveryPlugin", "redeliveryPolicyMap", "destinations"),
    "destinationInterceptors",
)
ACTIVEMQ_ROOTS = frozenset((*STRUCTURES, *STRATEGIES, "deadLetterStrategy", *BROKER_OTHERS))
