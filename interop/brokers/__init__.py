"""Brokers as processes: Leveret alone and as a cluster, RabbitMQ, garagemq, Qpid; and their controls."""
