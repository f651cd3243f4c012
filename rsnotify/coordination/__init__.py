"""What hub processes share in one Redis: the names of its keys, a bell, its clock, and claims."""
