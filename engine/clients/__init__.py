"""The state of one connected client: sessions, confirms, transactions, unacknowledged deliveries."""
