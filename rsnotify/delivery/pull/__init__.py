"""Documents that can be fetched: discovery, Change Lists, Resource Lists, archives."""
