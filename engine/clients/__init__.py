"""What one connected client has: sessions, confirms, transactions, deliveries that are out."""
