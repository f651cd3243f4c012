"""Each is a command of `manage.py`."""
