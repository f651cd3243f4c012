"""What is no test of a change: it looks for what nobody has thought of, or measures."""
