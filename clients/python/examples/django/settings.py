"""The least that the example needs; the environment says where the hub is."""

import os

SECRET_KEY = "for the example only"  # noqa: S105
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "urls"
WSGI_APPLICATION = "wsgi.application"
INSTALLED_APPS = ["rsnotify_client.integrations.django", "papers.apps.Papers"]
MIDDLEWARE: list[str] = []
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE", "papers.db"),
        "ATOMIC_REQUESTS": True,
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},  # wait for other writers, also after a read
    }
}

PAPERS = os.environ.get("SET", "dataset1")
"""The set of the hub that has the papers."""

RSNOTIFY = {
    "URL": os.environ["RSNOTIFY_URL"],
    "TOKEN": os.environ["RSNOTIFY_TOKEN"],
    "BASE_URL": os.environ.get("SITE", "http://127.0.0.1:8000"),
    "OUTBOX": os.environ.get("OUTBOX"),
}
