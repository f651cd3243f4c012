"""Programs that run, measure and check: `make help` names what runs each."""
