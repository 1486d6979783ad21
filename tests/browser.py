"""A real browser for tests of pages: Chromium without a window, driven over its DevTools protocol.

with Browser() as browser:
    page = browser.open(file, width=390, height=844)
    assert page.value("document.title") == "..."
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
import pytest

T = TypeVar("T")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed here")

_SECONDS = 60
"""For one answer; a browser that starts beside other work takes its time."""


class Browser:
    """A running browser, from `with` to its end."""

    def __enter__(self) -> Browser:
        assert CHROMIUM is not None
        self._profile = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        self._process = subprocess.Popen(
            [CHROMIUM, *flags, "--remote-debugging-port=0", f"--user-data-dir={self._profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        line = next(line for line in self._process.stderr if "DevTools listening on " in line)
        # What it writes later must not fill the pipe.
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        self._loop = asyncio.new_event_loop()
        self._connection = _Connection()
        self._do(self._connection.connect(line.partition("DevTools listening on ")[2].strip()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._connection.close())
        self._loop.close()
        self._process.terminate()
        self._process.wait(_SECONDS)
        self._profile.cleanup()

    def open(self, place: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False) -> OpenPage:
        """Open a file or an address and wait until it is loaded; what it requests and reports is recorded."""
        target = self._send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self._send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = OpenPage(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        page.send("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", {"features": [scheme]})
        page.send("Page.navigate", {"url": place if isinstance(place, str) else place.resolve().as_uri()})
        self._do(self._connection.until(session, "Page.loadEventFired"))
        return page

    def events(self, session: str, name: str) -> list[dict[str, Any]]:
        return [e["params"] for e in self._connection.events if (e.get("sessionId"), e["method"]) == (session, name)]

    def _send(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        return self._do(self._connection.send(method, parameters, session))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(work, _SECONDS))


class OpenPage:
    """A page that was opened."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def send(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a command of the DevTools protocol."""
        return self._browser._send(method, parameters or {}, self._session)

    def value(self, expression: str) -> Any:
        """The JSON value of an expression in the page; a promise is waited for."""
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", parameters)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression in the page is true."""
        look = f"() => {{ if ({condition}) {{ clearInterval(timer); done(); }} }}"
        self.value(f"new Promise(done => {{ const timer = setInterval({look}, 50); }})")

    def screenshot(self, path: Path) -> None:
        """Take a picture of the window."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        return [e["request"]["url"] for e in self._browser.events(self._session, "Network.requestWillBeSent")]

    @property
    def complaints(self) -> list[str]:
        """Errors of scripts, and what the browser logs, e.g. violations of the page's policy."""
        thrown = self._browser.events(self._session, "Runtime.exceptionThrown")
        logged = self._browser.events(self._session, "Log.entryAdded")
        return [str(e["exceptionDetails"]) for e in thrown] + [e["entry"]["text"] for e in logged]

    @property
    def dialogs(self) -> list[str]:
        """Messages of `alert` and its like."""
        return [e["message"] for e in self._browser.events(self._session, "Page.javascriptDialogOpening")]


class _Connection:
    """Commands and answers over one web socket; events are kept."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._count = 0

    async def connect(self, address: str) -> None:
        self._client = aiohttp.ClientSession()
        self._socket = await self._client.ws_connect(address, max_msg_size=0)

    async def close(self) -> None:
        await self._client.close()

    async def send(self, method: str, parameters: dict[str, Any], session: str | None) -> dict[str, Any]:
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        await self._socket.send_str(json.dumps(message | ({"sessionId": session} if session else {})))
        while True:
            answer = await self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    async def until(self, session: str, event: str) -> None:
        while not any((e.get("sessionId"), e["method"]) == (session, event) for e in self.events):
            await self._next()

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads((await self._socket.receive()).data)
        if "method" in message:
            self.events.append(message)
        return message
