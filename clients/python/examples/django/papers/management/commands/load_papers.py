"""`manage.py load_papers`: the hub gets all papers, for what no signal has reported."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from papers.models import Paper
from rsnotify_client import Error
from rsnotify_client.integrations.django import load_model


class Command(BaseCommand):
    help = "Make the papers of the database those of the hub."

    def handle(self, *_: Any, **__: Any) -> None:
        try:
            loaded = load_model(Paper)
        except Error as error:  # such as: too many would be deleted
            raise CommandError(str(error)) from None
        self.stdout.write(f"{loaded.resources} papers, {loaded.updated} updated")
