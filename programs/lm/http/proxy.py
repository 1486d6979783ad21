"""The way through a proxy, by aiohttp.

Each request has a connection of its own: aiohttp does not tell which connection an answer came on, and without that a
copy of an earlier answer cannot be told from the right one (`programs.lm.http.pool`).
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Mapping

import aiohttp

from debate_judge.programs.lm.http.connection import BODY_LIMIT, Answer, UnreachableError, WireError, unpacked


class ProxiedWire:
    """POSTs to one address by the proxy settings of the environment. Belongs to one event loop."""

    def __init__(self, url: str, headers: Mapping[str, str], *, connect_deadline: float) -> None:
        self._url = url
        self._headers = {**headers, "Accept-Encoding": "identity"}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_deadline)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, body: bytes) -> Answer:
        """Send `body` once and return the answer, whatever its status.

        Raises:
            UnreachableError: No connection could be made.
            WireError: The connection failed.
        """
        if self._session is None:
            # The rate limiter counts; a second limit here would only hide calls from it.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=self._timeout, headers=self._headers, trust_env=True, auto_decompress=False
            )
        try:
            async with self._session.post(self._url, data=body, allow_redirects=False) as answer:
                headers = {name.lower(): value for name, value in answer.headers.items()}
                raw = bytearray()
                async for part in answer.content.iter_any():
                    raw += part
                    if len(raw) > BODY_LIMIT:
                        raise WireError("the answer is too long")
                return Answer(answer.status, headers, unpacked(bytes(raw), headers))
        except (zlib.error, ValueError) as error:
            raise WireError(f"the answer cannot be unpacked: {error}") from error
        except aiohttp.ClientConnectorCertificateError as error:
            raise ssl.SSLCertVerificationError(str(error)) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UnreachableError(str(error)) from error
        except aiohttp.ClientError as error:
            raise WireError(f"{type(error).__name__}: {error}") from error

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            await asyncio.sleep(0)
