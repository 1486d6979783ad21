"""Serve an exported judge over HTTP.

    python runs/serve.py runs/store/exports/NAME
    python runs/serve.py models:/NAME/latest --host 0.0.0.0 --port 8000

POST /score takes {"source": "...", "text": "..."} or a list of these; /docs describes the API, /health is a health
check, and /metrics is for Prometheus. With DEBATE_SERVE_KEY set, requests need it as a bearer token; to listen on
anything but loopback it must be set. Put a proxy with TLS in front. Ctrl-C or SIGTERM stops accepting requests and
answers those already accepted. Replies are cached in --store.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Sequence

from debate_judge.data.errors import InputError, install_hint
from debate_judge.runs.flags import command_settings, run_command, setting
from debate_judge.runs.shared_flags import (
    ConnectionFlags,
    ExportFlags,
    LimitFlags,
)

KEY_VARIABLE = "DEBATE_SERVE_KEY"
"""The environment variable of the bearer key."""

_MIN_KEY_LENGTH = 16

GRACE = 60
"""Seconds that requests have left to finish when the service is stopped."""


@command_settings
class ServeFlags(ExportFlags, ConnectionFlags, LimitFlags):
    """Settings of a service."""

    host: str = setting(
        "127.0.0.1", "address to listen on; any other than loopback needs DEBATE_SERVE_KEY", affects_results=False
    )
    port: int = setting(8000, "port to listen on; 0 takes a free one", ge=0, le=65535, affects_results=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the process is told to stop; returns the exit code (0 stopped, 2 bad input, 3 the LM failed)."""
    return run_command("serve", __doc__, ServeFlags, _run, argv)


def bearer_key(host: str) -> str | None:
    """The bearer key of requests; None if they need none, which is allowed on loopback alone.

    Raises:
        InputError: The key is missing where it is needed, or too short to be safe.
    """
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if key and len(key) < _MIN_KEY_LENGTH:
        raise InputError("the key is too short", field=KEY_VARIABLE, expected=f"at least {_MIN_KEY_LENGTH} characters")
    if not key and not _is_loopback(host):
        raise InputError(
            "anyone who can reach this address could spend your money",
            field="--host",
            expected=f"127.0.0.1, or a key in {KEY_VARIABLE}",
            found=host,
            remedy=f"export {KEY_VARIABLE}=$(openssl rand -hex 32), and put TLS before the service",
        )
    return key or None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _run(flags: ServeFlags) -> int:
    key = bearer_key(flags.host)
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed", field="serve", remedy=install_hint("serve")) from error
    print("loading ...", file=sys.stderr)
    from debate_judge.runs.http_service import ServiceLimits, make_app
    from debate_judge.runs.scoring import load_judge

    with load_judge(flags) as judge:
        judge.compiled.require_calibrated(judge.select_aspects(), flags.scale)
        limits = ServiceLimits()
        app = make_app(judge, key=key, limits=limits, scale=flags.scale)
        uvicorn.run(
            app,
            host=flags.host,
            port=flags.port,
            log_level="info",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            # A little more than `limits.requests`, so that refusals and /health are still answered.
            limit_concurrency=limits.requests + 64,
            backlog=max(2048, limits.requests),
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
