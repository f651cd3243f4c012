"""A hub as a process: its objects, its web server, and several processes on one port."""
