"""The application for a WSGI server; it publishes what waits in the outbox."""

import os

from django.core.wsgi import get_wsgi_application

from rsnotify_client.integrations.django import start

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
application = get_wsgi_application()
start()
