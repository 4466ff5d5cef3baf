"""Managing a running broker: the commands of the control table, definitions in RabbitMQ's JSON."""
