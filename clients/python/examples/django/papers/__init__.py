"""The example's only application."""
