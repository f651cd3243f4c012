"""GET, PUT and DELETE /papers/NAME; a PUT without content fails after it has saved."""

from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from papers.models import Paper


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
    return HttpResponse(found.content)


urlpatterns = [path("papers/<slug:name>", paper, name="paper")]
