"""Makes the LM that a spec names: `offline`, an OpenAI-compatible endpoint, or any other that DSPy or LiteLLM knows."""

from __future__ import annotations

import difflib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.address import (
    COMPATIBLE,
    address_of,
    base_variable,
    without_credentials,
)
from debate_judge.programs.lm.batch.setup import line_for, require_batchable
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.engines import engine_for
from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.limits.provider_limits import default_limits
from debate_judge.programs.lm.local_engine import LocalEngine
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import Price, context_of, price_of
from debate_judge.programs.lm.reply import ReplyStore
from debate_judge.programs.lm.sharing.database import database_address
from debate_judge.programs.lm.sharing.team_replies import TeamReplies

_REPLIES = "DEBATE_REPLIES"

OFFLINE = "offline"
"""The spec of the embedded stand-in, which computes its answers from text statistics."""


def replies_folder(store: str | Path, spec: str) -> Path:
    """The folder with the stored replies of the LM `spec`, below the folder given with `--store`."""
    return Path(store) / "replies" / spec.replace("/", "_")


def open_replies(folder: Path, spec: str, database: str | None = None) -> Journal | TeamReplies:
    """Open the replies of an LM: those of a folder, and where a team shares a database those of all its machines.

    Args:
        folder: Of `replies_folder`.
        spec: The LM. Those of the offline LM stay in the folder: to compute one takes less time than to fetch it.
        database: postgresql://USER@HOST/DATABASE; by default what the variable DEBATE_REPLIES says, if it is set.

    Raises:
        InputError: The folder cannot be written, or the database cannot be reached.
    """
    address = database_address(database, "--replies", _REPLIES)
    journal = Journal(folder)
    if address is None or spec == OFFLINE:
        return journal
    try:
        return TeamReplies(journal, address, named="--replies" if database else _REPLIES, lm=folder.name)
    except InputError:
        journal.close()
        raise


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
        spec: `offline`, or PROVIDER/MODEL such as `openai/gpt-4o-mini` or `anthropic/claude-sonnet-4-5`.
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
        InputError: The spec is not `offline` and has no provider prefix; a budget in money was given, but no price is
            known; the prices are unreadable; or `api_base` is not an address.
        dspy.LMError: The provider is unknown, or its key is missing.
    """
    options = options or LMOptions()
    if options.batch is not None:
        require_batchable(spec)
    if spec == OFFLINE:
        return _offline(engine, store=store, concurrency=concurrency, options=options)
    if "/" not in spec:
        raise _not_an_lm(spec, flag)
    api_base = server_of(spec, api_base)
    from dspy.clients.lm import _is_openai_reasoning_model

    if _is_openai_reasoning_model(spec):
        temperature = max_tokens = None
    options = replace(options, usual=default_limits(spec, api_base))
    lm = JudgeLM(
        spec,
        engine=engine or engine_for(spec, api_base, concurrency),
        endpoint=without_credentials(api_base or os.environ.get(base_variable(spec)) or ""),
        store=store,
        concurrency=concurrency,
        options=options,
        price=_price(spec, api_base, options),
        batches=lambda store, meter: line_for(spec, api_base, options, store, meter) if engine is None else None,
        temperature=temperature,
        max_tokens=max_tokens,
    )
    lm.context = context_of(spec) if api_base is None else None
    return lm


def server_of(spec: str, api_base: str | None) -> str | None:
    """The address of the server of PROVIDER/MODEL, from the flag or the environment; None is the provider's default.

    Raises:
        InputError: What is given is not an address.
    """
    given, variable = address_of(api_base), base_variable(spec)
    if given is not None or spec.partition("/")[0] not in COMPATIBLE:
        # LiteLLM looks into the environment by itself.
        return given
    return address_of(os.environ.get(variable), variable)


def _offline(engine: LocalEngine | None, **common: Any) -> JudgeLM:
    from debate_judge.programs.offline import engine as offline

    engine = engine or offline.OfflineEngine()
    return JudgeLM(offline.MODEL, engine=engine, price=Price(0.0, 0.0, 0.0), **common)


def _not_an_lm(spec: str, flag: str) -> InputError:
    return InputError(
        f"{spec!r} is not an LM: give {OFFLINE!r} or PROVIDER/MODEL, e.g. openai/gpt-4o-mini",
        field=flag,
        expected=f"{OFFLINE!r} or PROVIDER/MODEL",
        found=spec,
        remedy=f"did you mean {OFFLINE!r}?" if difflib.get_close_matches(spec, [OFFLINE]) else None,
    )


def _price(spec: str, api_base: str | None, options: LMOptions) -> Price | None:
    price = price_of(spec, options.prices, listed=api_base is None)
    if price is None and options.budget.usd is not None:
        raise InputError(
            f"no price of {spec} is known",
            field="--budget",
            expected="a budget in calls or tokens, or a price",
            found=f"usd={options.budget.usd:g}",
            remedy="give --prices FILE with a section for this model, or cap calls or tokens",
        )
    return price
