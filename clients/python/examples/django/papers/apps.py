"""Says which model is published."""

from typing import Any

from django.apps import AppConfig
from django.conf import settings

from rsnotify_client.integrations.django import publish_model


def described(paper: Any) -> dict[str, object]:
    length = len(paper.content.encode())
    return {"lastmod": paper.changed, "length": length, "type": "text/plain"}


class Papers(AppConfig):
    """The papers, all in one set of resources."""

    name = "papers"

    def ready(self) -> None:
        from papers.models import Paper  # noqa: PLC0415

        publish_model(Paper, settings.PAPERS, fields=described)
