"""The Django app: in `INSTALLED_APPS` it brings the migration of the outbox table."""

from django.apps import AppConfig


class RSNotifyConfig(AppConfig):  # type: ignore[misc]
    """`rsnotify_client.integrations.django`, called `rsnotify` in `manage.py migrate`."""

    name = "rsnotify_client.integrations.django"
    label = "rsnotify"
    verbose_name = "rsnotify"
