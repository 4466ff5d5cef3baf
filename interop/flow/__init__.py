"""What real clients see when the broker is full: the rows of the queues page, G.E, over sockets.

`worlds` (configurations), `hand` (a client, through its driver), `operator` (who drains and looks), `row` (how a row is
written), then the rows themselves (`held`, `refused`, `whole`, `subscribers`), `trial` (runs them), `page`.
"""
