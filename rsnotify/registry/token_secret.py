"""The secret text of a token, and the hash and id that stand for it."""

import hashlib
import secrets


def new_secret() -> str:
    return f"rsn_{secrets.token_urlsafe(32)}"


def id_of(secret: str) -> str:
    """Computed from the secret, so that a caller that got no answer can still revoke the token."""
    return token_key(secret)[:8]


def token_key(secret: str) -> str:
    """Identifies a token without revealing it."""
    return hashlib.sha256(secret.encode()).hexdigest()
