"""Ring queues, redelivery and expiry: one table of scenarios against a real Apache Artemis and a real leveret.

Both read the same broker.xml. Artemis is driven through AMQP 1.0, leveret through AMQP 0-9-1.

    python -m leveret.interop.artemis [--only 'ring-*'] [--write benchmarks/results/artemis.md]
"""
