"""The papers."""

from django.db import migrations, models


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
    ]
