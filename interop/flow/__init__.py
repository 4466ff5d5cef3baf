"""What real clients see when the broker is full: the rows of the queues page, G.E, over sockets.

A row (`row`) is a function that uses a client through its driver (`client`) and a second connection that drains queues
(`operator`). Rows are in `address_limits`, `broker_limits`, `refused` and `subscribers`. `trial` runs them against
brokers with the `configurations`; `page` writes the results.
"""
