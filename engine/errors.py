"""What the engine refuses, in its own words.

A frontend owns one table that says which reply each class becomes; the facts that a reply names are attributes.
"""


class EngineError(Exception):
    """Base of all refusals; a refused operation has changed nothing."""

    def __init__(self, **facts: object) -> None:
        super().__init__(", ".join(f"{key}={value!r}" for key, value in facts.items()))
        self.__dict__.update(facts)


class BadRequest(ValueError):
    """A request about a leased queue that makes no sense; its text says why. It becomes an answer, not a reply."""


class NotFound(EngineError):
    """Something that was named does not exist."""


class VirtualHostNotFound(NotFound):
    """Facts: vhost."""


class QueueNotFound(NotFound):
    """Facts: name, vhost."""


class ExchangeNotFound(NotFound):
    """Facts: name, vhost."""


class AccessRefused(EngineError):
    """The thing exists, or could, but not for this user or this operation."""


class LoginRefused(AccessRefused):
    """Unknown user, wrong password, or a loopback-only user from another machine. Facts: mechanism."""


class LoginBraked(LoginRefused):
    """Too many failed: no password was looked at, right or wrong. Facts: mechanism, wait_ns (until one is)."""

    wait_ns: int


class VirtualHostRefused(AccessRefused):
    """The user has no permissions in the virtual host. Facts: vhost, user."""


class PermissionRefused(AccessRefused):
    """Facts: action ("configure", "write", "read"), kind, name, vhost, user."""


class TopicRefused(AccessRefused):
    """A routing or binding key. Facts: action, topic, name (of the exchange), vhost, user."""


class ReservedName(AccessRefused):
    """New names must not start with "amq.". Facts: kind, name."""


class DefaultExchangeRefused(AccessRefused):
    """The default exchange can't be declared, deleted or bound."""


class SystemExchangeRefused(AccessRefused):
    """A predeclared exchange can't be deleted. Facts: name, vhost."""


class InternalExchangeRefused(AccessRefused):
    """Clients can't publish to an internal exchange. Facts: name, vhost."""


class ExclusiveConsumerRefused(AccessRefused):
    """The queue has, or would get, an exclusive consumer beside others. Facts: name, vhost."""


class ConsumersMaxReached(AccessRefused):
    """The queue's settings allow no more consumers. Facts: name, vhost, limit."""


class ResourceLocked(EngineError):
    """The queue is exclusive to another client, or its exclusivity differs. Facts: name, vhost."""


class PreconditionFailed(EngineError):
    """The state of things forbids the operation."""


class UnknownExchangeType(PreconditionFailed):
    """Facts: type."""


class InequivalentField(PreconditionFailed):
    """Declared again with another field. Facts: field, kind, name, vhost, received, current (texts)."""


class InequivalentArgument(PreconditionFailed):
    """Declared again with another argument. Facts: key, kind, name, vhost, received, current (typed values or None)."""


class InvalidArgument(PreconditionFailed):
    """A declare or consume argument with an impossible value. Facts: key, name, vhost, reason."""


class UnsupportedArgument(PreconditionFailed):
    """An argument of another queue type. Facts: key, name, vhost, queue_type."""


class InvalidDelayedType(PreconditionFailed):
    """An x-delayed-message exchange without an x-delayed-type that exists. Facts: name, vhost."""


class InvalidDeadLetterExchange(PreconditionFailed):
    """x-dead-letter-exchange or alternate-exchange that is no string. Facts: type, key, kind, name, vhost."""


class UnsupportedProperty(PreconditionFailed):
    """A queue property that its type does not allow. Facts: property, name, vhost."""


class TransientQueueRefused(EngineError):
    """A queue that is neither durable nor exclusive, where those are no more."""


class ServerNamedRefused(PreconditionFailed):
    """Queue types that need a name of the client's. Facts: queue_type."""


class InvalidHeadersMatch(PreconditionFailed):
    """x-match of a headers binding. Facts: value."""


class InvalidHeadersMatchType(PreconditionFailed):
    """x-match that is no string. Facts: type, field."""


class InvalidWeight(PreconditionFailed):
    """The routing key of a binding to a consistent-hash exchange is no number from 1. Facts: value, is_integer."""


class HashesContradict(PreconditionFailed):
    """A consistent-hash exchange that is to hash a header and a property."""


class UnsupportedHashProperty(PreconditionFailed):
    """A consistent-hash exchange can't hash that. Facts: property."""


class ReplyConsumerMissing(PreconditionFailed):
    """A request for a direct reply on a session that does not consume any."""


class ReplyConsumerTaken(PreconditionFailed):
    """A second consumer of direct replies on a session."""


class ReplyConsumerAcknowledges(PreconditionFailed):
    """A consumer of direct replies that wants to acknowledge."""


class InvalidCopies(PreconditionFailed):
    """The header CC or BCC is no array. Facts: header, type."""


class AcknowledgementTimedOut(PreconditionFailed):
    """A delivery was not settled in time. Facts: timeout_ms."""

    timeout_ms: int


class InvalidExpiration(PreconditionFailed):
    """The expiration property is no decimal number of milliseconds up to ten years. Facts: value, reason."""


class PartialCommit(PreconditionFailed):
    """A queue refused part of a transaction."""


class InUse(PreconditionFailed):
    """Deletion "if unused" of something in use. Facts: kind, name, vhost."""


class NotEmpty(PreconditionFailed):
    """Deletion "if empty" of a queue with ready messages. Facts: name, vhost."""


class UnknownDeliveryTag(PreconditionFailed):
    """The tag was never sent on this session, or is settled. Facts: tag."""


class NotTransactional(PreconditionFailed):
    """tx.commit or tx.rollback without tx.select."""


class ConfirmAfterTx(PreconditionFailed):
    """confirm mode asked for on a transactional session."""


class TxAfterConfirm(PreconditionFailed):
    """Transactions asked for on a session in confirm mode."""


class MessageTooLarge(PreconditionFailed):
    """Facts: size, limit (octets)."""


class QueuesMaxReached(PreconditionFailed):
    """No more queues in a virtual host. Facts: name, vhost, limit."""


class AllQueuesMaxReached(PreconditionFailed):
    """No more queues in this broker. Facts: name, limit."""


class BindingsMaxReached(PreconditionFailed):
    """No more bindings in this broker. Facts: kind, name, limit."""


class ConditionsMaxReached(PreconditionFailed):
    """No more conditions in the bindings of a headers exchange. Facts: name (of the exchange), vhost, limit."""


class TopicStatesMaxReached(PreconditionFailed):
    """No more topic patterns whose words may stand anywhere in a key. Facts: name (of the exchange), vhost, limit."""


class DestinationFull(EngineError):
    """A publish was refused for want of room. Facts: destination, limit (queues page E.4, rows 5 to 8)."""


class TransactionTooLarge(PreconditionFailed):
    """More was published than a transaction may hold. Facts: limit (octets)."""


class UnackedMaxReached(PreconditionFailed):
    """A get while too many deliveries of the session are unsettled. Facts: name, limit."""


class GetBesideActiveConsumerRefused(EngineError):
    """A get from a quorum queue with a single active consumer. Facts: name, vhost."""


class PrefetchMissing(PreconditionFailed):
    """A consumer of a stream without a prefetch. Facts: name, vhost."""


class NotSupported(EngineError):
    """Queues of this type can't do that. Facts: name, vhost."""


class GlobalPrefetchNotSupported(NotSupported):
    """A prefetch shared by the consumers of a session, one of them of a quorum queue. Facts: name, vhost."""


class ConditionalDeleteNotSupported(NotSupported):
    """Deletion of a quorum queue if it is unused or empty. Facts: name, vhost, flag."""


class NoAckNotSupported(NotSupported):
    """A consumer of a stream that does not acknowledge. Facts: name, vhost."""


class StreamOperationNotSupported(NotSupported):
    """basic.get, basic.nack, basic.reject and queue.purge of a stream. Facts: operation, name, vhost."""


class NotAllowed(EngineError):
    """Forbidden whatever the state."""


class ConsumerTagInUse(NotAllowed):
    """Facts: tag."""


class LimitReached(NotAllowed):
    """A configured limit. Facts: what, limit."""


class ConnectionsMaxReached(NotAllowed):
    """No more connections to a virtual host. Facts: vhost, user, limit."""


class UserConnectionsMaxReached(NotAllowed):
    """No more connections of a user. Facts: user, limit."""


class UserChannelsMaxReached(NotAllowed):
    """No more sessions of a user. Facts: user, limit."""


class Expelled(EngineError):
    """An operator ended the connection."""


class ConnectionForced(Expelled):
    """Facts: reason."""


class UserDeleted(Expelled):
    """Facts: user."""


class VirtualHostDeleted(Expelled):
    """Facts: vhost."""
