"""Dates as HTTP and mail write them (RFC 9110, 5.6.7; RFC 5322, 3.3)."""

from datetime import UTC


def date_seconds(text: str | None) -> float | None:
    """A date in seconds since 1970; None for what is no date. Without a zone it is in UTC.

    >>> date_seconds("Thu, 01 Jan 1970 00:01:00 GMT"), date_seconds("tomorrow")
    (60.0, None)
    """
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - slow, and seldom needed

    try:
        found = None if text is None else parsedate_to_datetime(text)
        if found is None:
            return None
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
