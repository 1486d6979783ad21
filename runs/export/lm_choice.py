"""The LM of an export's judge and its address; an address that only the export gives is not used.

An export may come from anywhere. Calls carry the texts and the user's key, so they go only to the provider in the spec
(PROVIDER/MODEL) or to an address that the user has given, by `--api-base` or by the provider's environment variable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.http.address import base_variable, without_credentials
from debate_judge.programs.lm.options import MaxTokens
from debate_judge.runs.export.manifest import MANIFEST, Export


def resolve_lm(
    export: Export, lm: str | None, api_base: str | None, max_tokens: MaxTokens | None = None
) -> tuple[str, str | None, dict[str, Any]]:
    """Spec, address and further arguments of `make_lm`: those of the compile, unless others are given here.

    Raises:
        InputError: Only the export gives the address.
    """
    recorded = export.manifest.lm
    spec = lm or recorded.spec
    address = unconfirmed_address(export, lm, api_base)
    if address is not None:
        raise InputError(
            "the export names the server that texts and key would go to, and you have not confirmed it",
            file=export.folder,
            field="lm.api_base",
            expected="an address that you give yourself",
            found=repr(address),
            remedy="if you trust it, give it yourself: --api-base ADDRESS, or load(..., api_base=ADDRESS); to use "
            "another LM: --lm",
        )
    if lm is None and "://" in spec:
        # For some of LiteLLM's providers the model's name is an address.
        raise InputError(
            "the export's LM is an address, to which texts and key would go",
            file=export.folder,
            field="lm.spec",
            expected="PROVIDER/MODEL",
            found=repr(spec),
            remedy="if you trust it, name it yourself with --lm",
        )
    settings = recorded.model_dump(include={"temperature", "max_tokens"}, exclude_none=True)
    return spec, api_base, settings if max_tokens is None else {**settings, "max_tokens": max_tokens}


@contextmanager
def attribute_spec_errors(export: Export, lm: str | None) -> Iterator[None]:
    """Attribute errors about the LM's name to the export, unless the user has given another LM."""
    try:
        yield
    except InputError as error:
        if lm is not None or error.field != "--lm":
            raise
        remedy = "name the LM that you want to use with --lm PROVIDER/MODEL"
        raise error.replaced(file=export.folder / MANIFEST, field="lm.spec", remedy=remedy) from None


def unconfirmed_address(export: Export, lm: str | None, api_base: str | None) -> str | None:
    """The export's address, if calls would go there and the user has not given it as well; else None."""
    recorded = export.manifest.lm
    address = recorded.api_base
    if not address or api_base or (lm is not None and lm != recorded.spec):
        return None
    environment_address = os.environ.get(base_variable(recorded.spec))
    return (
        None
        if environment_address and without_credentials(environment_address).rstrip("/") == address.rstrip("/")
        else address
    )
