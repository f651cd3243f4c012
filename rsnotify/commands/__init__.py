"""What the verbs of the command line do, once `cli` knows their options."""
