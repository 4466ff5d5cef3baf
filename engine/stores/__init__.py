"""The stores of queues' ready messages: in memory and paged out, with priorities, last values, or as a log."""
