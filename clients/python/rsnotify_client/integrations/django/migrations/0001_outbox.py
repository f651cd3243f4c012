"""The outbox table; harmless where an application's own migration has created it."""

from django.db import migrations

from rsnotify_client.integrations.django import create_outbox_table, drop_outbox_table


class Migration(migrations.Migration):  # type: ignore[misc]
    """The first one."""

    operations = [migrations.RunPython(create_outbox_table, drop_outbox_table)]  # noqa: RUF012
