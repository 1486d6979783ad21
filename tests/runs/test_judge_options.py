"""What a user sets about a judge reaches it, and what cannot be set is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.settings import Settings
from debate_judge.programs import JUDGES, options_of, preset
from debate_judge.programs.chateval.judge import ROLES, ChatEval
from debate_judge.runs.flags.parser import make_parser, read


def of(*arguments: str) -> dict[str, Any]:
    return read(Settings, make_parser("compile", "", Settings).parse_args(arguments)).options()


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


@pytest.mark.parametrize("text", ["turns", "=3", "turns=1", ""])
def test_what_is_no_option_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not an option"):
        of("-J", "turns=2", "-J", text)


@pytest.mark.parametrize(
    ("judge", "option", "expected"),
    [
        ("chateval", "both-orders=False", "true or false"),
        ("chateval", "comparing=no", "true or false"),
        ("chateval", "turns=two", "a whole number from 1 to 101"),
        ("chateval", "samples=2.5", "a whole number from 1 to 1000"),
        ("chateval", "samples=1000000", "a whole number from 1 to 1000"),
        ("hallucination-single", "self-check=False", "true or false"),
        ("hallucination-selfcheck3", "examples=4", "a whole number from 0 to 3"),
        ("hallucination", "min-rounds=-1", "a whole number from 0 up"),
        ("debate", "order=-1", "a whole number from 0 up"),
    ],
)
def test_values_of_another_kind_or_size_are_refused(judge: str, option: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        preset(judge, of("-J", option))
    assert caught.value.field == option.partition("=")[0].replace("-", "_")
    assert caught.value.expected == expected


def test_roles_of_a_file_sit_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('librarian = "You keep books."\ncoach = "You train a team."\n', encoding="utf-8")
    judge = preset("chateval", of("-J", f"roles={file}"))
    assert isinstance(judge, ChatEval)
    assert judge.texts == {"librarian": "You keep books.", "coach": "You train a team."}
    assert judge.instructions()["roles['coach']"].startswith("You train a team.")


def test_a_role_of_the_file_can_be_everybodys(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('librarian = "You keep books."\ncoach = "You train a team."\n', encoding="utf-8")
    judge = preset("chateval", of("-J", f"roles={file}", "-J", "same-role=coach"))
    assert isinstance(judge, ChatEval)
    assert judge.texts == {"coach-1": "You train a team.", "coach-2": "You train a team."}


def test_one_built_in_role_for_all_keeps_their_number() -> None:
    judge = preset("chateval", of("-J", "same-role=annotator"))
    assert isinstance(judge, ChatEval)
    assert judge.texts == {f"annotator-{i}": ROLES["annotator"] for i in (1, 2, 3)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no role found"),
        ("a = 3", "'a': wrong type"),
        ("a = ", "not valid TOML"),
        ('a = " "', "a is empty"),
    ],
)
def test_a_bad_file_of_roles_is_named(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "roles.toml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as raised:
        of("-J", f"roles={file}")
    assert str(file) in str(raised.value)


def test_an_option_that_the_judge_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(InputError, match="no option 'turns'") as raised:
        preset("debate", {"turns": 3})
    assert "score_mode" in str(raised.value)


def test_a_value_that_an_option_cannot_have_is_refused() -> None:
    with pytest.raises(InputError, match="score mode"):
        preset("debate", {"score_mode": "guess"})
    with pytest.raises(InputError, match="transition"):
        preset("hallucination", {"transition": "always"})
    with pytest.raises(InputError, match="did you mean 'critic'"):
        preset("chateval", {"roles": ["critik"]})


@pytest.mark.parametrize("name", JUDGES)
def test_every_option_of_a_judge_is_kept_in_its_configuration(name: str) -> None:
    try:
        config = preset(name, {}).config()
    except InputError as error:
        pytest.skip(str(error))
    assert set(options_of(name)) - {"same_role"} <= set(config)
