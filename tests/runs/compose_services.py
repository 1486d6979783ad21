"""What runs/team/compose.yaml says, and its services started by hand: their commands, here, without containers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
TEAM = ROOT / "runs" / "team"


def composed() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((TEAM / "compose.yaml").read_text(encoding="utf-8"))
    return content


def example() -> dict[str, str]:
    lines = (TEAM / "example.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """A text with its variables, as compose fills them in."""
    return re.sub(r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda m: values.get(m[1]) or m[2] or "", text)


@contextmanager
def started(name: str, given: Mapping[str, str], here: Mapping[str, str], *further: str) -> Iterator[str]:
    """Run a service until the block ends; yields its address once it says that it is well.

    Args:
        name: Of the service, whose command begins with `mlflow`.
        given: What a user has put into .env.
        here: What stands in the command and in the environment -> what takes its place on this machine.
        further: Arguments.
    """

    def local(text: str) -> str:
        # At one go: what has been put in may hold such a text, too.
        return re.sub("|".join(map(re.escape, here)), lambda match: here[match[0]], text)

    service = composed()["services"][name]
    values = {**example(), **given}
    words = [local(filled_in(word, values)) for word in service["command"]]
    # Nothing else: a container has no more.
    environment = {variable: os.environ[variable] for variable in ("PATH", "HOME")}
    environment |= {variable: local(filled_in(str(text), values)) for variable, text in service["environment"].items()}
    address = f"http://127.0.0.1:{words[words.index('--port') + 1]}"
    process = subprocess.Popen(
        [sys.executable, "-m", *words, *further], env=environment, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while not _is_well(address):
            assert process.poll() is None, f"{name} has ended"
            assert time.monotonic() < until, f"{name} was not well"
            time.sleep(0.1)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def _is_well(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
