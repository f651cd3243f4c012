"""A module for each framework; none is needed by the client itself."""
