"""The commands of a copy: mirror, dump, audit; and validate, of what a Source serves."""
