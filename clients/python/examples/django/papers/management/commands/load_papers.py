"""`manage.py load_papers`: the hub gets all papers, for what no signal has reported."""

from typing import Any

from django.core.management.base import BaseCommand

from papers.models import Paper
from rsnotify_client.integrations.django import load_model


class Command(BaseCommand):
    help = "Make the papers of the database those of the hub."

    def handle(self, *_: Any, **__: Any) -> None:
        loaded = load_model(Paper)
        self.stdout.write(f"{loaded.resources} papers, {loaded.updated} updated")
