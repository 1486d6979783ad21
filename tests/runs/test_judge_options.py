"""What a user sets about a judge reaches it, and what cannot be set is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.settings import Settings
from debate_judge.programs import JUDGES, build_preset, options_of
from debate_judge.programs.chateval.judge import ROLES, ChatEval
from debate_judge.runs.flags.parser import make_parser, read_settings


def of(*arguments: str) -> dict[str, Any]:
    return read_settings(Settings, make_parser("compile", "", Settings).parse_args(arguments)).options()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {}),
        (("-J", "score-mode=sampled:5"), {"score_mode": "sampled:5"}),
        (("-J", "turns=3", "-J", "both-orders=false"), {"turns": 3, "both_orders": False}),
        (("-J", "transition=always-skeptic"), {"transition": "always-skeptic"}),
        (("-J", "roles=critic, scientist"), {"roles": ["critic", "scientist"]}),
        (("-J", "same-role=annotator"), {"same_role": "annotator"}),
        (("-J", "score-mode=sampled:5", "-J", "joint=true"), {"score_mode": "sampled:5", "joint": True}),
        (("-J", "together=4", "-J", "roles=critic,scientist"), {"together": 4, "roles": ["critic", "scientist"]}),
        (("-J", "same-role=critic"), {"same_role": "critic"}),
    ],
)
def test_flags_become_options(arguments: tuple[str, ...], expected: dict[str, Any]) -> None:
    assert of(*arguments) == expected


def test_roles_of_a_file_sit_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('librarian = "You keep books."\ncoach = "You train a team."\n', encoding="utf-8")
    judge = build_preset("chateval", of("-J", f"roles={file}"))
    assert isinstance(judge, ChatEval)
    assert judge.role_texts == {"librarian": "You keep books.", "coach": "You train a team."}
    assert judge.instructions()["roles['coach']"].startswith("You train a team.")


def test_a_role_of_the_file_can_be_everybodys(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('librarian = "You keep books."\ncoach = "You train a team."\n', encoding="utf-8")
    judge = build_preset("chateval", of("-J", f"roles={file}", "-J", "same-role=coach"))
    assert isinstance(judge, ChatEval)
    assert judge.role_texts == {"coach-1": "You train a team.", "coach-2": "You train a team."}


def test_one_built_in_role_for_all_keeps_their_number() -> None:
    judge = build_preset("chateval", of("-J", "same-role=annotator"))
    assert isinstance(judge, ChatEval)
    assert judge.role_texts == {f"annotator-{i}": ROLES["annotator"] for i in (1, 2, 3)}


@pytest.mark.parametrize("name", JUDGES)
def test_every_option_of_a_judge_is_kept_in_its_configuration(name: str) -> None:
    try:
        config = build_preset(name, {}).config()
    except InputError as error:
        pytest.skip(str(error))
    assert set(options_of(name)) - {"same_role"} <= set(config)
