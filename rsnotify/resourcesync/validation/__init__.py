"""The validator: the specifications' tables, and the rules for documents and for their entries."""
