"""A hub as a process: composed, served over HTTP, run once or several times on one port."""
