"""A copy of a Source's resources in a directory: made, kept in step, verified."""
