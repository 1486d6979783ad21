"""A place in the limiter for a call that other processes may want to make as well."""

from __future__ import annotations

from debate_judge.programs.lm.limits.budget import TokenNeed
from debate_judge.programs.lm.limits.rate_limiter import Limiter
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.sharing.claims import CallClaim


async def acquire(limiter: Limiter, need: TokenNeed, claim: CallClaim | None, *, first: bool) -> Reply | None:
    """Wait for a place and for the claim; the reply, and no place, if another process has brought it meanwhile.

    A call is claimed only when it may go out, so that processes which want the same calls share them out among
    themselves. While it waits for another process it has no place, and what holds a claim waits for nothing but a
    place: so no two processes can wait for each other.

    Args:
        limiter: Of the process.
        need: What the call will use.
        claim: Of the call; None where no other process can want it.
        first: Whether it goes before all waiting calls.

    Raises:
        dspy.LMError: As `Limiter.acquire` raises it.
    """
    while True:
        await limiter.acquire(need, first=first)
        if claim is None or claim.held:
            return None
        granted = False
        try:
            granted = await claim.take()
        finally:
            if not granted or claim.found is not None:
                limiter.release(need, unused=True)
        if not granted:
            await claim.wait()
        if granted or claim.found is not None:
            return claim.found
