"""Processes that tests start: waiting for what they print, and for servers."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """What a process prints on stderr up to a line with these words."""
    assert process.stderr is not None
    output = ""
    while words not in output:
        line = process.stderr.readline()
        assert line, output
        output += line
    return output


def wait_for_server(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until a server answers at a URL; the test fails, with the end of its log, where it ends before."""
    while process.poll() is None:
        with suppress(OSError):
            urllib.request.urlopen(url, timeout=5).close()
            break
        time.sleep(0.5)
    assert process.poll() is None, log.read_text()[-2000:]
