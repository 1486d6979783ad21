"""Makes the LM that a spec names: `offline`, an OpenAI-compatible endpoint, or any other that DSPy or LiteLLM knows."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.engine import Transport
from debate_judge.programs.lm.http.address import (
    OPENAI_COMPATIBLE,
    address_of,
    base_variable,
    key_variable,
    without_credentials,
)
from debate_judge.programs.lm.local_engine import LocalEngine
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import EXAMPLE_LM, Price, price_of
from debate_judge.programs.lm.reply import ReplyStore
from debate_judge.programs.lm.sql.postgresql import database_address
from debate_judge.programs.lm.store import SqlStore

_REPLIES = "DEBATE_REPLIES"

OFFLINE = "offline"
"""The spec of the embedded stand-in, which computes its answers from text statistics."""


def open_replies(folder: Path, spec: str, database: str | None = None) -> SqlStore:
    """Open the replies of an LM: those of a folder, and where a team shares a database those of all its machines.

    Args:
        folder: Of `programs.lm.reply.replies_folder`.
        spec: The LM. Those of the offline LM stay in the folder: to compute one takes less time than to fetch it.
        database: postgresql://USER@HOST/DATABASE; by default what the variable DEBATE_REPLIES says, if it is set.
    """
    address = database_address(database, "replies", _REPLIES)
    if address is None or spec == OFFLINE:
        return SqlStore(folder, lm=folder.name)
    return SqlStore(folder, address, field="replies" if database else _REPLIES, lm=folder.name)


def make_lm(
    spec: str,
    *,
    api_base: str | None = None,
    store: ReplyStore | None = None,
    concurrency: int = 16,
    temperature: float | None = 0.0,
    max_tokens: int | None = 2000,
    options: LMOptions | None = None,
    engine: LocalEngine | None = None,
    flag: str = "--lm",
) -> JudgeLM:
    """Make the LM that `spec` names. Keys come from the environment only.

    Args:
        spec: `offline`, or PROVIDER/MODEL such as `openai/gpt-6-luna` or `anthropic/claude-sonnet-4-5`.
        api_base: Address of an OpenAI-compatible server for that provider name.
        store: Keeps replies, so that no call is paid for twice; in memory by default.
        concurrency: Most calls in flight.
        temperature: Sampling temperature; 0 as in DEBATE, appendix E.1. Not sent to reasoning models.
        max_tokens: Longest reply, in tokens. Not sent to reasoning models.
        options: Rate limits, retries, budget, prices.
        engine: Answers in place of the spec's own engine, without network or key. Calls keep their identity, so
            replies in the store are found.
        flag: The flag that the spec comes from, for messages.

    Raises:
        InputError: The spec names no LM; its key cannot be sent; a budget in money was given, but no price is known;
            the prices are unreadable; or `api_base` is not an address.
    """
    _require_usable(spec, flag, options := options or LMOptions())
    common: dict[str, Any] = {"store": store, "concurrency": concurrency, "options": options}
    if spec == OFFLINE:
        from debate_judge.programs.offline import engine as offline

        return JudgeLM(offline.MODEL, engine=engine or offline.OfflineEngine(), price=Price(0.0, 0.0, 0.0), **common)
    # The offline LM starts a fifth faster without these.
    from debate_judge.programs.lm.batch.engine import BatchEngine, warn_of_running_jobs
    from debate_judge.programs.lm.http.chat_completions import OpenAICompatible

    api_base = server_of(spec, api_base)
    if is_reasoning_model(spec):
        temperature = max_tokens = None
    transport = engine or transport_for(spec, api_base, flag)
    lm = JudgeLM(
        spec,
        engine=transport,
        endpoint=without_credentials(api_base or os.environ.get(base_variable(spec)) or ""),
        price=_price(spec, api_base, options),
        temperature=temperature,
        max_tokens=max_tokens,
        **common,
    )
    if isinstance(transport, OpenAICompatible):
        transport.on_rate_limits = lambda limits: lm.recorded.limiter.on_rate_limits(limits)
    if engine is None and options.batch is not None:
        lm.recorded.batches = BatchEngine(spec, api_base, options, lm.store, lm.meter, lm.recorded.probe)
    elif engine is None:
        warn_of_running_jobs(lm.store)
    return lm


def _require_usable(spec: str, flag: str, options: LMOptions) -> None:
    if options.batch is not None and not spec.startswith("openai/"):
        raise InputError(
            f"{spec} cannot be asked in batch jobs",
            field="batch",
            expected="--lm openai/MODEL with --config batch=openai",
            found=spec,
            remedy="leave batch away, or choose such an LM",
        )
    if spec != OFFLINE and "/" not in spec:
        raise InputError(
            f"{spec!r} is not an LM: give {OFFLINE!r} or PROVIDER/MODEL, e.g. {EXAMPLE_LM}",
            field=flag,
            expected=f"{OFFLINE!r} or PROVIDER/MODEL",
            found=spec,
            remedy=did_you_mean(spec, [OFFLINE]),
        )


def transport_for(spec: str, api_base: str | None, flag: str) -> Transport:
    """What makes one attempt at a call to PROVIDER/MODEL."""
    prefix = spec.partition("/")[0]
    if prefix not in OPENAI_COMPATIBLE:
        from debate_judge.programs.lm.http.other_providers import LiteLLM

        return LiteLLM(spec, api_base, flag)
    from debate_judge.programs.lm.http.chat_completions import OpenAICompatible

    # Pasted with a line break, it would be no header.
    key = (os.environ.get(key_variable(spec)) or "").strip() or None
    if key and not (key.isascii() and key.isprintable()):
        # Not quoted, for it may be nearly the key.
        raise InputError(
            "the key has a character that HTTP does not allow",
            field=key_variable(spec),
            expected="letters, digits and signs of ASCII",
            remedy="set the variable to the key as the provider shows it",
        )
    return OpenAICompatible(
        api_base or OPENAI_COMPATIBLE[prefix],
        key,
        key_variable=key_variable(spec) if prefix == "openai" and not api_base else None,
    )


def is_reasoning_model(spec: str) -> bool:
    """Whether a model of OpenAI's refuses a temperature and a limit on its replies."""
    family = spec.rpartition("/")[2].lower()
    return re.match(r"(o[1345](-(mini|nano|pro))?(-\d{4}-\d{2}-\d{2})?$|gpt-[5-9](?!.*-chat))", family) is not None


def server_of(spec: str, api_base: str | None) -> str | None:
    """The address of the server of PROVIDER/MODEL, from the flag or the environment; None is the provider's default."""
    given, variable = address_of(api_base), base_variable(spec)
    if given is not None or spec.partition("/")[0] not in OPENAI_COMPATIBLE:
        # LiteLLM looks into the environment by itself.
        return given
    return address_of(os.environ.get(variable), variable)


def _price(spec: str, api_base: str | None, options: LMOptions) -> Price | None:
    price = price_of(spec, options.prices, use_litellm=api_base is None)
    if price is None and options.budget.usd is not None:
        raise InputError(
            f"the price of {spec} is unknown",
            field="--budget",
            expected="a budget in calls or tokens, or a price",
            found=f"usd={options.budget.usd:g}",
            remedy="give --config prices=FILE with a section for this model, or cap calls or tokens",
        )
    return price


def offline_lm() -> JudgeLM:
    """The embedded stand-in for an LM: it computes text statistics, without a key and without a network."""
    return make_lm(OFFLINE)
