"""What a user can set about a judge besides its name: the flags of every command that makes judges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.programs import JUDGES, options_of
from debate_judge.runs.flags.declared import flag_group, setting
from debate_judge.runs.flags.named_texts import named_texts
from debate_judge.runs.flags.parser import listed

PERSONAS_FILE = setting(None, "TOML file with your own personas for the Critic", metavar="FILE")


@flag_group("judge")
class JudgeOptionFlags:
    """Options of judges; what is absent leaves a judge as it comes."""

    score_mode: str | None = setting(
        None,
        "how a reply becomes a score: text (the number as written), sampled:K (the mean of K samples) or expected (the "
        "mean over the scale by token probabilities)",
        metavar="MODE",
    )
    together: int | None = setting(
        None, "score up to K candidates of a source side by side in one call; 0 keeps them apart", metavar="K", ge=0
    )
    joint: bool = setting(False, "score all aspects in one call")
    roles: str | None = setting(
        None, "ChatEval: TOML file with lines name = text, or comma-separated names of built-in roles", metavar="FILE"
    )
    same_role: str | None = setting(None, "ChatEval: give all referees the same role, e.g. annotator", metavar="ROLE")
    judge_option: tuple[str, ...] = setting(
        (),
        "its options, e.g. score-mode=sampled:5, together=4; may be repeated",
        name="-J",
        metavar="NAME=VALUE",
        repeated=True,
        assigns=True,
    )

    def options(self) -> dict[str, Any]:
        """Option -> value.

        Raises:
            InputError: An option is not of the form NAME=VALUE or is given twice, or the file of roles cannot be used.
        """
        options: dict[str, Any] = {}
        for text in self.judge_option:
            name, equals, value = text.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or not name or name in options:
                raise InputError(
                    "not an option of a judge",
                    field="-J",
                    expected="NAME=VALUE, each name once",
                    found=text,
                )
            options[name] = _value(value.strip())
        flags = ("score_mode", "together", "roles", "same_role")
        named = {name: getattr(self, name) for name in flags}
        options |= {name: value for name, value in named.items() if value is not None}
        options |= {"joint": True} if self.joint else {}
        if isinstance(options.get("roles"), str):
            options["roles"] = _roles(options["roles"])
        return options


def options_for(judges: Sequence[str], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Judge -> those of the options that it has, for a command that makes several judges.

    Raises:
        InputError: None of the judges has an option.
    """
    presets = [name for name in judges if name in JUDGES or (":" in name and not Path(name).exists())]
    for option, value in options.items():
        if not any(option in options_of(name) for name in presets):
            known = sorted({o for name in presets for o in options_of(name)})
            raise InputError(
                f"no judge has an option {option!r}",
                field="-J",
                expected=f"one of {', '.join(known)}" if known else "no options for these judges",
                found=f"{option}={value}",
                remedy=did_you_mean(option, known),
            )
    return {name: {o: v for o, v in options.items() if o in options_of(name)} for name in presets}


def _value(text: str) -> Any:
    """A JSON value where it is one (numbers, true, false, lists), otherwise the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _roles(text: str) -> dict[str, str] | list[str]:
    if text.endswith(".toml") or Path(text).is_file():
        return named_texts(Path(text), "role")
    return listed(text)
