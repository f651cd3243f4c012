"""The papers, and the outbox of their changes."""

from django.db import migrations, models

from rsnotify_client.integrations.django import create_outbox_table


class Migration(migrations.Migration):
    """The first one."""

    operations = [
        migrations.CreateModel(
            "Paper",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("name", models.SlugField(unique=True)),
                ("content", models.TextField()),
                ("changed", models.DateTimeField(auto_now=True)),
            ],
        ),
        migrations.RunPython(create_outbox_table, migrations.RunPython.noop),
    ]
