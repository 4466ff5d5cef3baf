"""What a node reads from etcd and writes there: keys, transactions, leases, watches."""
