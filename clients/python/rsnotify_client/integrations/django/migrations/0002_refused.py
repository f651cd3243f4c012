"""The table of refused changes, where the first migration has made the outbox alone."""

from django.db import migrations

from rsnotify_client.integrations.django import create_outbox_table


class Migration(migrations.Migration):  # type: ignore[misc]
    """The second one."""

    dependencies = [("rsnotify", "0001_outbox")]  # noqa: RUF012
    operations = [  # noqa: RUF012
        migrations.RunPython(create_outbox_table, migrations.RunPython.noop)
    ]
