"""The LM that scores with an export, and its address: an address that is only in the export is not used.

An export may come from anywhere. Calls carry the texts and the user's key, so they go to the provider that the spec
names or to an address that the user has given: by `--api-base`, by the provider's environment variable, or by
confirming the export's address (`confirmed`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.http.address import base_variable, key_variable, without_credentials
from debate_judge.runs.export.manifest import Export


def lm_of(
    export: Export, lm: str | None, api_base: str | None, max_tokens: int | None = None
) -> tuple[str, str | None, dict[str, Any]]:
    """Spec, address and further arguments of `make_lm`: those of the compile, unless others are given here.

    An address that is only in the export is refused.
    """
    recorded = export.manifest["lm"]
    spec = lm or recorded["spec"]
    address = foreign_address(export, lm, api_base)
    if address is not None:
        raise InputError(
            "the export names the server that texts and key would go to, and you have not confirmed it",
            file=export.folder,
            field="lm.api_base",
            expected="an address that you give yourself",
            found=repr(address),
            remedy="if you trust it, give it yourself: --api-base ADDRESS, or load(..., api_base=ADDRESS); for another "
            "LM: --lm",
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
    settings = {name: recorded[name] for name in ("temperature", "max_tokens") if recorded.get(name) is not None}
    return spec, api_base, settings if max_tokens is None else {**settings, "max_tokens": max_tokens}


def foreign_address(export: Export, lm: str | None, api_base: str | None) -> str | None:
    """The export's address, if calls would go there and the user has not given it, too; else None."""
    recorded: Mapping[str, Any] = export.manifest["lm"]
    address: str | None = recorded.get("api_base")
    if not address or api_base or (lm is not None and lm != recorded["spec"]):
        return None
    given = os.environ.get(base_variable(recorded["spec"]))
    return None if given and without_credentials(given).rstrip("/") == address.rstrip("/") else address


def confirmed(export: Export, lm: str | None, api_base: str | None) -> str | None:
    """The export's address, after the user has confirmed it at the terminal; `api_base` if there is none to confirm."""
    address = foreign_address(export, lm, api_base)
    if address is None:
        return api_base
    if sys.stdin is None or not sys.stdin.isatty():
        raise InputError(
            "there is no terminal at which you could be asked whether you trust the export",
            field="trust-export",
            expected="a terminal, or the address given with --api-base",
            found=repr(address),
        )
    spec = export.manifest["lm"]["spec"]
    print(
        f"The export sends all texts, and the key in {key_variable(spec)} if there is one, to {address!r}.\n"
        "Type yes to allow it: ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    if sys.stdin.readline().strip().lower() != "yes":
        raise InputError("not confirmed, so nothing was sent", field="trust-export", found=repr(address))
    return address
