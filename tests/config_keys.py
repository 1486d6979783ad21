"""Settings by their Python names, for the command lines of tests."""

from __future__ import annotations


def keys(**values: object) -> list[str]:
    """The flags of settings, e.g. `--trials 4 --no-preflight` for `keys(trials=4, preflight=False)`."""
    flags: list[str] = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        flags += [f"--no-{flag}"] if value is False else [f"--{flag}", str(value)]
    return flags
