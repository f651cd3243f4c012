# The hub alone: it needs a Redis beside it, as docker-compose.yml brings. It writes nothing, so it
# runs with a read-only file system. The drivers are for `rsnotify relay`, which runs from it, too.
ARG PYTHON=3.12.12-slim-bookworm

FROM python:${PYTHON} AS build
RUN python -m venv /opt/rsnotify
COPY pyproject.toml README.md LICENSE /src/
COPY rsnotify /src/rsnotify
COPY clients /src/clients
RUN /opt/rsnotify/bin/pip install --no-cache-dir '/src[hub,mysql,postgresql]'

FROM python:${PYTHON}
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin rsnotify
COPY --from=build /opt/rsnotify /opt/rsnotify
ENV PATH=/opt/rsnotify/bin:$PATH

USER 10001
WORKDIR /tmp
EXPOSE 8080

HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
  CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8080/health/ready', timeout=4)"]

CMD ["rsnotify", "serve", "--host", "0.0.0.0"]
