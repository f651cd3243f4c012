"""The outbox table."""
