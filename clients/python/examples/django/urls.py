"""GET, PUT and DELETE /papers/NAME; a PUT without content fails after it has saved."""

from django.conf import settings
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import path
from papers.models import Paper

HUB = settings.RSNOTIFY["URL"]


def paper(request: HttpRequest, name: str) -> HttpResponse:
    if request.method == "PUT":
        Paper.objects.update_or_create(name=name, defaults={"content": request.body.decode()})
        if not request.body:
            raise BadRequest("a paper has content")  # and nothing is saved nor published
        return HttpResponse(status=204)
    found = get_object_or_404(Paper, name=name)
    if request.method == "DELETE":
        found.delete()
        return HttpResponse(status=204)
    link = f'<{HUB}/{settings.PAPERS}/capabilitylist.xml>; rel="resourcesync"'
    return HttpResponse(found.content, "text/plain", headers={"Link": link})


def source_description(_: HttpRequest) -> HttpResponse:
    """Whoever knows our site only finds the hub's documents, and with them everything."""
    return redirect(f"{HUB}/.well-known/resourcesync")


urlpatterns = [
    path("papers/<slug:name>", paper, name="paper"),
    path(".well-known/resourcesync", source_description),
]
