"""What a running broker can be asked and told: the control table's commands, definitions in RabbitMQ's JSON."""
