"""Messages: contents, properties, dead letters, duplicate ids, events. Independent of queues."""
