"""The page for people: its files, who gets it, and the validator behind it."""
