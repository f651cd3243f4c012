"""A whole Source held against the specifications: its documents, channels and resources."""
