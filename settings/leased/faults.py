"""What can be wrong with a leased queue, by code. Source: queues page A.3.2."""

#: Code -> the condition, as reports word it.
CONDITIONS: dict[str, str] = {
    "E-NAME": "neither Name nor Topic, or one that is empty, longer than 255 bytes, or of another queue",
    "E-MTYPE": "missing or unknown MessageType",
    "E-MTYPE-MISMATCH": "MessageType differs from that of the logged topic",
    "E-DPT-REQUIRED": "regex UnderlyingTopic without DefaultPublishTarget",
    "E-DPT-OUTSIDE": "DefaultPublishTarget not captured by UnderlyingTopic",
    "E-REGEX": "UnderlyingTopic does not compile",
    "E-TXLOG": "the TransactionLog does not record the topic",
    "E-ENUM": "value outside the enum",
    "E-INT": "not a decimal integer",
    "E-MIN": "below minimum",
    "E-DUR": "bad duration",
    "E-EXPR": "bad expression",
    "E-EXCL": "Priority with BarrierExpression, or TargetQueueDepth with either",
    "E-FBM": "FileBackedMetadata is not enabled",
    "E-OWNER-REQUIRED": "GroupLocalQueue without InitialOwner",
    "E-OWNER-TAG": "InitialOwner or GroupLocalQueueDomain on another tag",
    "E-RP": "RecoveryPoint is not a keyword, bookmark or timestamp",
    "E-RP-UNKNOWN": "the log does not have the RecoveryPoint",
    "E-REPL-LOCAL": "a LocalQueue topic is listed for replication",
    "E-DUP-ELEM": "repeated element",
    "E-UNKNOWN": "unknown element",
}


class LeasedFault(ValueError):
    """One fault. `code`: of `CONDITIONS`; `argument`: the queue argument at fault; `detail`: what exactly.

    Its text is the code, the condition and the detail. The detail of E-EXPR and E-REGEX names a column.
    """

    def __init__(self, code: str, argument: str, detail: str = "") -> None:
        super().__init__(f"{code}: {CONDITIONS[code]}" + (f": {detail}" if detail else ""))
        self.code = code
        self.argument = argument
        self.detail = detail
