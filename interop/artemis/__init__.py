"""Scenarios of ring queues, redelivery and expiry that run on Apache Artemis and on leveret.

Both read the same broker.xml. Artemis is used through AMQP 1.0, leveret through AMQP 0-9-1.
"""
