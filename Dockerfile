# The hub alone: it needs a Redis beside it, as docker-compose.yml brings.
FROM python:3.12-slim

RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/rsnotify rsnotify

COPY pyproject.toml README.md LICENSE /src/
COPY rsnotify /src/rsnotify
COPY clients/python /src/clients/python
RUN pip install --no-cache-dir '/src[hub]' && rm -r /src

USER rsnotify
WORKDIR /var/lib/rsnotify
EXPOSE 8080

HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
  CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8080/health/ready', timeout=4)"]

CMD ["rsnotify", "serve", "--host", "0.0.0.0"]
