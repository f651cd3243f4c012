"""Redis Cluster: each key has a slot, each slot a node, and a node may hand its slots over."""
