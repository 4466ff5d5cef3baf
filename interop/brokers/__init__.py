"""Brokers as processes of their own: a leveret, RabbitMQ, garagemq, Qpid; and what scenarios may do to them."""
