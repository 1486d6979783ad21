"""Settings without a flag, for the command lines of tests."""

from __future__ import annotations


def keys(**values: object) -> list[str]:
    """`--config NAME=VALUE` for each setting, e.g. `keys(trials=4, preflight=False)`."""
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items()}
    return [part for name, value in texts.items() for part in ("--config", f"{name.replace('_', '-')}={value}")]
