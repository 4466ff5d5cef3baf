"""The rules of queues, consumers and addresses, resolved from declarations and settings. Independent of queues."""
