"""What a Destination or a crawler can GET: discovery, Change Lists, Resource Lists, archives."""
