"""The names of LiteLLM's providers, without importing LiteLLM, which takes seconds."""

from __future__ import annotations

import importlib.util
import re
from functools import lru_cache
from pathlib import Path

from debate_judge.data.errors import InputError, did_you_mean


def require_provider(spec: str, flag: str = "--lm") -> None:
    """Refuse PROVIDER/MODEL whose provider is nearly that of LiteLLM; any other unknown one is left to LiteLLM itself,
    which also knows providers that were registered with it.

    Raises:
        InputError: The provider is misspelt.
    """
    provider, slash, _ = spec.partition("/")
    if slash and provider not in _providers() and (remedy := did_you_mean(provider, _providers())):
        raise InputError(f"no provider is called {provider!r}", field=flag, found=spec, remedy=remedy)


@lru_cache(maxsize=1)
def _providers() -> frozenset[str]:
    """The values of `litellm.types.utils.LlmProviders`, from its source; empty where they are not found."""
    spec = importlib.util.find_spec("litellm")
    source = Path(spec.origin).parent / "types" / "utils.py" if spec and spec.origin else None
    if source is None or not source.is_file():
        return frozenset()
    _, _, members = source.read_text(encoding="utf-8").partition("class LlmProviders(")
    return frozenset(re.findall(r'^    \w+ = "(\w+)"', members.partition("\nclass ")[0], re.MULTILINE))
