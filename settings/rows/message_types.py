"""The types of bodies that a logged topic, or a queue of one, may have; expressions look only into JSON."""

MESSAGE_TYPES = ("json", "binary", "xml", "fix", "nvfix", "bson", "msgpack")
