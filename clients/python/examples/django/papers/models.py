"""What the repository holds."""

from django.db import models
from django.urls import reverse


class Paper(models.Model):
    """A text under a name."""

    name = models.SlugField(unique=True)
    content = models.TextField()
    changed = models.DateTimeField(auto_now=True)

    def get_absolute_url(self) -> str:
        return reverse("paper", args=[self.name])
