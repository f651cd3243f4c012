"""Says which model is published."""

from django.apps import AppConfig

from rsnotify_client.integrations.django import publish_model


class Papers(AppConfig):
    """The papers, all in one set of resources."""

    name = "papers"

    def ready(self) -> None:
        from papers.models import Paper  # noqa: PLC0415

        publish_model(Paper, "dataset1", fields=lambda paper: {"lastmod": paper.changed})
