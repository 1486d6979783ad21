"""A compiled judge's instructions in MLflow's prompt registry, one prompt per aspect and role.

The prompt `FAMILY.ASPECT.ROLE`, whose family is the registered model's name, gets a new version whenever a compile
wrote other instructions, and the alias that is the judge's name points to the version that this judge speaks by, as in
`prompts:/debate-summarization.coherence.scorer@NAME`. The registry shows versions beside each other, with their
difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debate_judge.runs.tracking.store import Place

_LINKED = "mlflow.linkedPrompts"
"""Tag from which a run's page knows its prompts."""


def register_prompts(place: Place, run_id: str, judge: str, prompts: Mapping[str, str]) -> None:
    """Register a judge's prompts by name, point the alias `judge` to them, and link them to the run that made it."""
    alias, linked = alias_of(judge), []
    for name, text in prompts.items():
        known = prompt_name(name)
        prompt = place.client.load_prompt(known, allow_missing=True)
        if prompt is None or prompt.template != text:
            prompt = place.client.register_prompt(known, text, f"compiled as {judge}", {"run_id": run_id})
        place.client.set_prompt_alias(known, alias, prompt.version)
        linked.append({"name": known, "version": str(prompt.version)})
    # As `link_prompt_version_to_run` would, which looks for the run in the store of the process instead of in this one.
    place.client.set_tag(run_id, _LINKED, json.dumps(linked))


def prompt_name(text: str) -> str:
    """`text` as a prompt's name: what is not allowed there becomes a hyphen."""
    return re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII).strip("-") or "prompt"


def alias_of(text: str) -> str:
    """`text` as an alias. MLflow keeps `latest` and `v1`, `v2`, … for itself."""
    alias = re.sub(r"[^\w-]+", "-", text, flags=re.ASCII).strip("-") or "judge"
    return f"judge-{alias}" if re.fullmatch(r"(?i)latest|v\d+", alias) else alias


def prompts_of(family: str, instructions: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Aspect -> role -> instructions as registered prompts, without those that a role does not have."""
    return {
        f"{family}.{aspect}.{role}": text
        for aspect, roles in instructions.items()
        for role, text in roles.items()
        if text
    }
