"""A whole Source checked against the specifications: its documents, channels and resources."""
