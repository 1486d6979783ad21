"""A provider's rate limits: read from headers, and never above what the user set."""

from __future__ import annotations

import asyncio
import json

import pytest

from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.limits.limiter import RateLimits, limits_from_headers
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.make_lm import make_lm
from tests.hostile_server import HostileServer, sized
from tests.programs.engines import reply_to

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("headers", "spec", "limits"),
    [
        (
            {"x-ratelimit-limit-requests": "10000", "x-ratelimit-limit-tokens": "2000000"},
            "openai/m",
            RateLimits(1e4, 2e6),
        ),
        ({"x-ratelimit-limit-tokens": "500"}, "openai/m", RateLimits(None, 500)),
        ({"x-ratelimit-limit-requests": "14400", "x-ratelimit-limit-tokens": "6000"}, "groq/m", RateLimits(None, 6000)),
        ({"x-ratelimit-limit-requests": "0"}, "openai/m", None),
        ({"x-ratelimit-limit-requests": "many"}, "openai/m", None),
        ({}, "openai/m", None),
    ],
)
def test_rate_limits_are_read_from_headers(headers: dict[str, str], spec: str, limits: RateLimits | None) -> None:
    assert limits_from_headers(headers, spec) == limits


ANSWER = json.dumps({"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]}).encode()
LIMITS = (b"X-RateLimit-Limit-Requests: 120", b"X-RateLimit-Limit-Tokens: 90000")


def asked(address: str, options: LMOptions) -> JudgeLM:
    lm = make_lm("openai/m", api_base=address, options=options)

    async def ask() -> None:
        await reply_to(lm, [{"role": "user", "content": "Well?"}])
        await lm.aclose()

    asyncio.run(ask())
    return lm


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        (LMOptions(), RateLimits(120, 90_000)),
        (LMOptions(rpm=600), RateLimits(600, 90_000)),
        (LMOptions(rpm=60, tpm=1_000_000), RateLimits(60, 1_000_000)),
    ],
)
def test_rate_limits_from_headers_apply_unless_the_user_set_others(options: LMOptions, limits: RateLimits) -> None:
    with HostileServer(lambda _: [sized(ANSWER, *LIMITS)]) as server:
        assert asked(server.url, options).recorded_engine.limiter.limits == limits
