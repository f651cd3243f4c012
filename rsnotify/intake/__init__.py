"""The ways in: Sources publish, Destinations ask the WebSub hub, the operator administers."""
