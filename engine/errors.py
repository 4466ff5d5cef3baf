"""The engine's refusals.

A frontend has one table that maps each class to a reply; the fields that a reply names are attributes.
"""


class EngineError(Exception):
    """Base of all refusals. A refused operation has changed nothing, unless its docstring says otherwise."""

    def __init__(self, **fields: object) -> None:
        super().__init__(", ".join(f"{key}={value!r}" for key, value in fields.items()))
        self.__dict__.update(fields)


class BadRequest(ValueError):
    """An invalid request to a service about a queue; the text is the reason. It becomes an answer, not a reply."""


class NotFound(EngineError):
    """An object that the operation names does not exist."""


class VirtualHostNotFound(NotFound):
    """Fields: vhost."""


class QueueNotFound(NotFound):
    """Fields: name, vhost."""


class QueueNotHosted(NotFound):
    """The client's site declares the queue with other arguments than its hosts. Fields: name, vhost, why."""


class ExchangeNotFound(NotFound):
    """Fields: name, vhost."""


class AccessRefused(EngineError):
    """The object exists, or could, but not for this user or this operation."""


class LoginRefused(AccessRefused):
    """Unknown user, wrong password, or a loopback-only user from another machine. Fields: mechanism."""


class LoginThrottled(LoginRefused):
    """Refused without comparing the password, after too many failures. Fields: mechanism, wait_ns (until the next)."""

    wait_ns: int


class VirtualHostRefused(AccessRefused):
    """The user has no permissions in the virtual host. Fields: vhost, user."""


class PermissionRefused(AccessRefused):
    """Fields: action ("configure", "write", "read"), kind, name, vhost, user."""


class TopicRefused(AccessRefused):
    """No permission on a routing or binding key. Fields: action, topic, name (of the exchange), vhost, user."""


class ReservedName(AccessRefused):
    """New names must not start with "amq.". Fields: kind, name."""


class DefaultExchangeRefused(AccessRefused):
    """The default exchange can't be declared, deleted or bound."""


class SystemExchangeRefused(AccessRefused):
    """A predeclared exchange can't be deleted. Fields: name, vhost."""


class InternalExchangeRefused(AccessRefused):
    """Clients can't publish to an internal exchange. Fields: name, vhost."""


class ExclusiveConsumerRefused(AccessRefused):
    """The queue has an exclusive consumer, or would get one although it has others. Fields: name, vhost."""


class ConsumersMaxReached(AccessRefused):
    """The queue has its maximum number of consumers. Fields: name, vhost, limit."""


class ResourceLocked(EngineError):
    """The queue is exclusive to another client, or its exclusivity differs. Fields: name, vhost."""


class PreconditionFailed(EngineError):
    """The state of the broker forbids the operation."""


class UnknownExchangeType(PreconditionFailed):
    """Fields: type."""


class InequivalentField(PreconditionFailed):
    """Declared again with another field. Fields: field, kind, name, vhost, received, current (texts)."""


class InequivalentArgument(PreconditionFailed):
    """Declared again with another argument. Fields: key, kind, name, vhost, received, current (typed values or
    None)."""


class InvalidArgument(PreconditionFailed):
    """A declare or consume argument with an invalid value. Fields: key, name, vhost, reason."""


class UnsupportedArgument(PreconditionFailed):
    """An argument of another queue type. Fields: key, name, vhost, queue_type."""


class SegmentSizeTooLarge(PreconditionFailed):
    """The segments of a stream would be too large. Fields: key."""


class InvalidDelayedType(PreconditionFailed):
    """An x-delayed-message exchange without an x-delayed-type that exists. Fields: name, vhost."""


class InvalidDeadLetterExchange(PreconditionFailed):
    """x-dead-letter-exchange or alternate-exchange that is not a string. Fields: type, key, kind, name, vhost."""


class UnsupportedProperty(PreconditionFailed):
    """A queue property that its type does not allow. Fields: property, name, vhost."""


class TransientQueueRefused(EngineError):
    """A queue that is neither durable nor exclusive, which the broker's options forbid."""


class ServerNamedRefused(PreconditionFailed):
    """A queue of a type whose name the client must choose. Fields: queue_type."""


class InvalidHeadersMatch(PreconditionFailed):
    """Invalid x-match of a headers binding. Fields: value."""


class InvalidHeadersMatchType(PreconditionFailed):
    """x-match that is not a string. Fields: type, field."""


class InvalidWeight(PreconditionFailed):
    """The routing key of a binding to a consistent-hash exchange is not a number from 1. Fields: value, is_integer."""


class HashesContradict(PreconditionFailed):
    """A consistent-hash exchange declared with both a header and a property."""


class UnsupportedHashProperty(PreconditionFailed):
    """A property that a consistent-hash exchange can't hash. Fields: property."""


class ReplyConsumerMissing(PreconditionFailed):
    """A request for a direct reply on a session without a consumer of direct replies."""


class ReplyConsumerTaken(PreconditionFailed):
    """A second consumer of direct replies on a session."""


class ReplyConsumerAcknowledges(PreconditionFailed):
    """A consumer of direct replies with acknowledgements, which must be without."""


class InvalidCopies(PreconditionFailed):
    """The header CC or BCC is not an array. Fields: header, type."""


class AcknowledgementTimedOut(PreconditionFailed):
    """A delivery was not settled in time. Fields: timeout_ms."""

    timeout_ms: int


class InvalidExpiration(PreconditionFailed):
    """The expiration property is not a decimal number of milliseconds up to ten years. Fields: value, reason."""


class PartialCommit(PreconditionFailed):
    """A queue refused part of a transaction; the rest is applied."""


class InUse(PreconditionFailed):
    """Deletion "if unused" of a queue or exchange in use. Fields: kind, name, vhost."""


class NotEmpty(PreconditionFailed):
    """Deletion "if empty" of a queue with ready messages. Fields: name, vhost."""


class UnknownDeliveryTag(PreconditionFailed):
    """The tag was never sent on this session, or is settled. Fields: tag."""


class NotTransactional(PreconditionFailed):
    """tx.commit or tx.rollback without tx.select."""


class ConfirmAfterTx(PreconditionFailed):
    """confirm.select on a transactional session."""


class TxAfterConfirm(PreconditionFailed):
    """tx.select on a session in confirm mode."""


class MessageTooLarge(PreconditionFailed):
    """A body above the maximum size. Fields: size, limit (octets)."""


class QueuesMaxReached(PreconditionFailed):
    """Maximum number of queues in a virtual host. Fields: name, vhost, limit."""


class AllQueuesMaxReached(PreconditionFailed):
    """Maximum number of queues in the broker. Fields: name, limit."""


class BindingsMaxReached(PreconditionFailed):
    """Maximum number of bindings in the broker. Fields: kind, name, limit."""


class ConditionsMaxReached(PreconditionFailed):
    """Maximum conditions in the bindings of a headers exchange. Fields: name (of the exchange), vhost, limit."""


class TopicStatesMaxReached(PreconditionFailed):
    """Maximum states of patterns that match anywhere in a key. Fields: name (of the topic exchange), vhost, limit."""


class DestinationFull(EngineError):
    """A publish was refused because a limit is reached. Fields: destination, limit (queues page E.4, rows 5 to 8)."""


class TransactionTooLarge(PreconditionFailed):
    """The publishes of a transaction exceed its maximum size. Fields: limit (octets)."""


class UnackedMaxReached(PreconditionFailed):
    """A get on a session with too many unacknowledged deliveries. Fields: name, limit."""


class GetBesideActiveConsumerRefused(EngineError):
    """A get from a quorum queue with a single active consumer. Fields: name, vhost."""


class PrefetchMissing(PreconditionFailed):
    """A consumer of a stream, or a replay, without a prefetch. Fields: name, vhost."""


class NotSupported(EngineError):
    """The operation is not supported by this type of queue. Fields: name, vhost."""


class GlobalPrefetchNotSupported(NotSupported):
    """A global prefetch on a session with a consumer of a quorum queue. Fields: name, vhost."""


class ConditionalDeleteNotSupported(NotSupported):
    """Deletion of a quorum queue if it is unused or empty. Fields: name, vhost, flag."""


class NoAckNotSupported(NotSupported):
    """A consumer of a stream, or a replay, that does not acknowledge. Fields: name, vhost."""


class StreamOperationNotSupported(NotSupported):
    """basic.get, basic.nack, basic.reject and queue.purge of a stream. Fields: operation, name, vhost."""


class NotAllowed(EngineError):
    """Forbidden whatever the state."""


class ConsumerTagInUse(NotAllowed):
    """Fields: tag."""


class LimitReached(NotAllowed):
    """A configured limit is reached. Fields: what, limit."""


class ConnectionsMaxReached(NotAllowed):
    """Maximum connections to a virtual host. Fields: vhost, user, limit."""


class UserConnectionsMaxReached(NotAllowed):
    """Maximum connections of a user. Fields: user, limit."""


class UserChannelsMaxReached(NotAllowed):
    """Maximum sessions of a user. Fields: user, limit."""


class Expelled(EngineError):
    """The broker ended the connection, for an operator or by a rule."""


class ConnectionForced(Expelled):
    """Fields: reason."""


class UserDeleted(Expelled):
    """Fields: user."""


class VirtualHostDeleted(Expelled):
    """Fields: vhost."""
