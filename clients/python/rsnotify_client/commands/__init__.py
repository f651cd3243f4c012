"""The commands of a Source and a Destination: publish, relay, resources, subscribe."""
