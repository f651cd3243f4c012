"""Which content coding a peer accepts (RFC 9110, 12.5.3): gzip, or none."""

HEADER_CHARACTERS = 1024  # that are read of `Accept-Encoding`; browsers send some fifty


def accepts_gzip(accepted: str | None) -> bool:
    """What `Accept-Encoding` says of gzip."""
    if not accepted:
        return False
    quality = dict(map(_coding, accepted.lower()[:HEADER_CHARACTERS].split(",")))
    found = quality.get("gzip", quality.get("*"))
    return found is not None and found.strip("0.") != ""


def _coding(requested: str) -> tuple[str, str]:
    """A coding and its quality, such as `gzip;q=0.5`."""
    name, _, parameter = requested.partition(";")
    return name.strip(), parameter.strip().removeprefix("q=") or "1"
