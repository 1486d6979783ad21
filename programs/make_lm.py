"""Makes the LM that a spec names: `offline`, a server that speaks OpenAI's protocol, or any that LiteLLM knows."""

from __future__ import annotations

import logging
import os
import re
from functools import cache
from typing import Any

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.replies import LocalTransport, ReplyStore, Transport
from debate_judge.programs.lm.settings import (
    CALLED_DIRECTLY,
    EXAMPLE_LM,
    LMOptions,
    MaxTokens,
    Price,
    Temperature,
    base_variable,
    key_variable,
    litellm_entry,
    normalize_address,
    price_of,
    require_provider,
    without_credentials,
)
from debate_judge.programs.lm.transport import LiteLLMTransport, anthropic_transport, openai_transport

_LOG = logging.getLogger(__name__)

FREE = Price(0.0, 0.0, 0.0)

OFFLINE = "offline"
"""The spec of the offline LM, which computes its replies from text statistics."""
OFFLINE_NOTE = "The LM is the offline stand-in, which is text statistics and not a language model."


def make_lm(
    spec: str,
    *,
    api_base: str | None = None,
    store: ReplyStore | None = None,
    concurrency: int = 16,
    temperature: Temperature = 0.0,
    max_tokens: MaxTokens = 2000,
    options: LMOptions | None = None,
    transport: LocalTransport | None = None,
    flag: str = "--lm",
) -> JudgeLM:
    """Make the LM that `spec` names. Keys come from the environment only.

    Args:
        spec: `offline`, or PROVIDER/MODEL such as `openai/gpt-6-luna` or `anthropic/claude-sonnet-4-5`.
        api_base: Address of the provider's server; by default from the environment, or else the provider's own.
        store: Keeps replies, so that no call is paid for twice; in memory by default.
        concurrency: Maximum number of calls in flight.
        temperature: Sampling temperature; 0 as in DEBATE, appendix E.1. `none`: not sent, as to models that refuse it.
        max_tokens: Maximum length of a reply, in tokens; `none` likewise.
        options: Rate limits, retries, budget, prices.
        transport: Answers in place of the server, without network or key; the keys of calls stay the same.
        flag: The flag that the spec comes from, for messages.

    Raises:
        InputError: The spec names no LM; its key cannot be sent; a budget in money was given, but no price is known;
            the file of prices cannot be read; or `api_base` is not an address.
    """
    if spec != OFFLINE and "/" not in spec:
        raise InputError(
            f"{spec!r} is not an LM: give {OFFLINE!r} or PROVIDER/MODEL, e.g. {EXAMPLE_LM}",
            field=flag,
            expected=f"{OFFLINE!r} or PROVIDER/MODEL",
            found=spec,
            remedy=did_you_mean(spec, [OFFLINE]),
        )
    require_provider(spec, flag)
    options = options or LMOptions()
    common: dict[str, Any] = {"store": store, "concurrency": concurrency, "options": options}
    if spec == OFFLINE:
        from debate_judge.programs import offline

        return JudgeLM(offline.MODEL, transport=transport or offline.OfflineTransport(), price=FREE, **common)
    api_base = server_address(spec, api_base)
    price = price_of(spec, options.prices, use_litellm=api_base is None)
    if price is None and options.budget.usd is not None:
        raise InputError(
            f"the price of {spec} is unknown",
            field="--budget",
            expected="a budget in calls or tokens, or a price",
            found=f"usd={options.budget.usd:g}",
            remedy="give --prices FILE with a section for this model, or cap calls or tokens",
        )
    made = transport or transport_for(spec, api_base, flag)
    settings = {"temperature": temperature, "max_tokens": max_tokens}
    refused = [name for name in _refused_settings(spec) if settings[name] != "none"]
    if refused and transport is None:
        _note_refused(spec, " and no ".join(name.replace("_", "-") for name in refused))
    common |= {name: None if value == "none" or name in refused else value for name, value in settings.items()}
    endpoint = without_credentials(api_base or os.environ.get(base_variable(spec)) or "")
    return JudgeLM(spec, transport=made, endpoint=endpoint, price=price, **common)


def server_address(spec: str, api_base: str | None) -> str | None:
    """The address of the server of PROVIDER/MODEL, from the flag or the environment; None is the provider's own."""
    address, variable = normalize_address(api_base), base_variable(spec)
    if address is not None or spec.partition("/")[0] not in CALLED_DIRECTLY:
        # LiteLLM reads the environment itself.
        return address
    return normalize_address(os.environ.get(variable), variable)


def transport_for(spec: str, api_base: str | None, flag: str) -> Transport:
    """The transport for PROVIDER/MODEL, which makes one attempt at a call."""
    provider = spec.partition("/")[0]
    # OpenAI has some models in its Responses API alone, which LiteLLM calls for them; other servers of that name chat.
    lacks_chat = provider == "openai" and not api_base and litellm_entry(spec).get("mode") == "responses"
    if provider not in CALLED_DIRECTLY or lacks_chat:
        return LiteLLMTransport(spec, api_base, flag)
    # A line break that was pasted with the key is not allowed in a header.
    key = (os.environ.get(key_variable(spec)) or "").strip() or None
    if key and not (key.isascii() and key.isprintable()):
        # The value is not shown, because it may be the key but for one character.
        raise InputError(
            "the key has a character that HTTP does not allow",
            field=key_variable(spec),
            expected="printable ASCII characters",
            remedy="set the variable to the key as the provider shows it",
        )
    make = anthropic_transport if provider == "anthropic" else openai_transport
    required = provider != "hosted_vllm" and not api_base
    return make(api_base or CALLED_DIRECTLY[provider], key, key_variable(spec) if required else None)


def is_reasoning_model(spec: str) -> bool:
    """Whether the model is one of OpenAI's that refuse a temperature and a limit on the reply's length."""
    family = spec.rpartition("/")[2].lower()
    return re.match(r"(o[1345](-(mini|nano|pro))?(-\d{4}-\d{2}-\d{2})?$|gpt-[5-9](?!.*-chat))", family) is not None


def _refused_settings(spec: str) -> tuple[str, ...]:
    """The settings that the model is known to refuse, by its name or by LiteLLM's table."""
    if is_reasoning_model(spec):
        return "temperature", "max_tokens"
    return ("temperature",) if litellm_entry(spec).get("supports_sampling_params") is False else ()


@cache
def _note_refused(spec: str, names: str) -> None:
    """Once, although a run may make several LMs of one model."""
    _LOG.warning("%s takes no %s, which is left out", spec, names)


def offline_lm() -> JudgeLM:
    """A stand-in for an LM that computes its replies from text statistics, without a key and without a network."""
    return make_lm(OFFLINE)
