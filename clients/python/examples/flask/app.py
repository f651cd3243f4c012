"""A small repository of papers that notifies the hub of its changes: `flask --app app run`.

PUT and DELETE /papers/NAME; RSNOTIFY_URL and RSNOTIFY_TOKEN say where the hub is.
"""

import os

from flask import Flask, request, url_for

from rsnotify_client.integrations.flask import RSNotify

app = Flask(__name__)
app.config["RSNOTIFY_URL"] = os.environ["RSNOTIFY_URL"]
app.config["RSNOTIFY_TOKEN"] = os.environ["RSNOTIFY_TOKEN"]
app.config["RSNOTIFY_OUTBOX"] = os.environ.get("OUTBOX")
rsnotify = RSNotify(app)
rsnotify.start(app)

papers: dict[str, bytes] = {}


@app.get("/papers/<name>")
def read(name: str) -> tuple[bytes, int]:
    return (papers[name], 200) if name in papers else (b"no such paper\n", 404)


@app.put("/papers/<name>")
def write(name: str) -> tuple[str, int]:
    is_new = name not in papers
    papers[name] = request.get_data()
    notify = rsnotify.created if is_new else rsnotify.updated
    notify("dataset1", address(name), length=len(papers[name]))
    return "", 201 if is_new else 204


@app.delete("/papers/<name>")
def remove(name: str) -> tuple[str, int]:
    if papers.pop(name, None) is None:
        return "no such paper\n", 404
    rsnotify.deleted("dataset1", address(name))
    return "", 204


def address(name: str) -> str:
    return url_for("read", name=name, _external=True)
