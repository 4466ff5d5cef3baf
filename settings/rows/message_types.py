"""Types of message bodies, of logged topics and of the queues that capture them; expressions look only into JSON."""

MESSAGE_TYPES = ("json", "binary", "xml", "fix", "nvfix", "bson", "msgpack")
