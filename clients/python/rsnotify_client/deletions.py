"""How much may be deleted at once, unless somebody says that more is meant."""

MAX_DELETE = 10.0
"""Percent of what there is."""


def too_many(deleted: int, known: int, max_delete: float, what: str = "resources") -> str | None:
    """Why so many of those known may not go, as the end of a sentence; None if they may."""
    percent = 100 * deleted / max(1, known)
    if percent <= max_delete:
        return None
    least = min(100, int(percent) + 1)
    return (
        f"{deleted} of {known} {what}, which is more than {max_delete:g} %; if that is meant, "
        f"say so with --max-delete {least} (in Python: max_delete={least})"
    )
