"""The HTTP API described: OpenAPI 3.1, made of the types and tables that judge requests."""
