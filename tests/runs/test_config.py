"""Settings that are flags, settings that are keys of --config alone, and options of a judge."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.settings import Settings
from debate_judge.programs import JUDGES, build_preset, options_of
from debate_judge.programs.chateval.judge import ROLES
from debate_judge.runs.flags.declaration import command_settings, flag_group, setting
from debate_judge.runs.flags.invocation import command
from debate_judge.runs.flags.parser import as_command, make_parser, read_settings, settings_of


@flag_group("options of the stove")
class StoveFlags:
    rack: int = setting(2, "rack of the oven", ge=1)
    fan: bool = setting(False, "turn the fan on")
    stove_option: tuple[str, ...] = setting(
        (), "any other", name="-S", metavar="NAME=VALUE", repeated=True, assigns_settings=True
    )


@command_settings
class CookFlags(StoveFlags):
    FLAGS: ClassVar = ("dish", "salt", "stove_option")
    REMOVED: ClassVar = {"--oil": "the dish decides"}

    dish: str = setting(..., "what is cooked", metavar="DISH", name="DISH")
    salt: float = setting(1.0, "grams of salt", gt=0)
    minutes: int = setting(10, "how long", ge=1)
    spices: tuple[str, ...] = setting((), "all spices")
    lid: bool = setting(True, "cover it")
    note: str | None = setting(None, "on the label")


def cook(*argv: str) -> CookFlags:
    return settings_of("check", "Cook.", CookFlags, argv)


def refused(*argv: str) -> InputError:
    with pytest.raises(InputError) as caught:
        cook(*argv)
    return caught.value


def file(folder: Path, text: str) -> str:
    path = folder / "cook.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_only_what_is_listed_is_a_flag() -> None:
    parser = make_parser("check", "Cook.", CookFlags)
    assert {action.dest for action in parser._actions} == {"help", "config", "dish", "salt", "stove_option"}
    text = " ".join(parser.format_help().split())
    assert "DISH [FLAGS]" in text
    assert "docs/settings.md" in text
    assert "minutes, spices, lid, note, rack, fan." in text


def test_every_setting_is_a_key_and_flags_win_over_it(tmp_path: Path) -> None:
    path = file(tmp_path, 'dish = "soup"\nminutes = 5\nspices = ["pepper", "dill"]\nlid = false\nfan = true\n')
    settings = CookFlags(dish="soup", minutes=5, spices=("pepper", "dill"), lid=False, fan=True)
    assert cook("--config", path) == settings
    keys = ("minutes=5", "spices=pepper,dill", "lid=false", "fan=true", "note=a=b")
    by_key = cook("soup", *(part for text in keys for part in ("--config", text)))
    assert by_key == replace(settings, note="a=b")
    assert cook("stew", "--config", path, "--config", "salt=3", "--salt", "2") == replace(settings, dish="stew", salt=2)
    # Of several the last one wins.
    assert cook("--config", path, "--config", "minutes=7").minutes == 7
    assert cook("--config", "minutes=7", "--config", path).minutes == 5


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("minutes = 0", "minutes", "at least 1"),
        ("lid=maybe", "lid", "true or false"),
        ("salt=x", "--salt", "a finite number"),
        ("minuts = 5", "minuts", "'minutes'"),
        ("oil = 5", "oil", "the dish decides"),
    ],
)
def test_a_value_or_name_is_refused_as_the_user_writes_it(text: str, field: str, expected: str, tmp_path: Path) -> None:
    """With spaces it is tried in a file as well."""
    configs = [text.replace(" ", "")] + ([file(tmp_path, f"{text}\n")] if " " in text else [])
    for config in configs:
        error = refused("stew", "--config", config)
        assert (error.field, error.file) == (field, config if config.endswith(".toml") else None)
        assert expected in f"{error.expected} {error.remedy}"


@pytest.mark.parametrize(
    ("argv", "typed"),
    [
        (("--minutes", "5"), "--config minutes=5"),
        (("--note", "for Ann"), "--config 'note=for Ann'"),
        (("--no-lid",), "--config lid=false"),
        (("--fan", "stew"), "--config fan=true"),
    ],
)
def test_a_key_that_is_given_as_a_flag_says_how_it_is_written(argv: tuple[str, ...], typed: str) -> None:
    error = refused("stew", *argv)
    assert error.field == argv[0].partition("=")[0]
    assert typed in str(error.remedy)
    assert cook("stew", *shlex.split(typed)) != cook("stew")


def test_a_flag_that_is_refused_shows_no_password() -> None:
    assert "the dish decides" in str(refused("stew", "--oil=2").remedy)
    error = refused("stew", "--note", "postgresql://judge:Sesame-9417@db.example/replies")
    assert "Sesame" not in str(error)
    assert "db.example/replies" in str(error.remedy)
    assert refused().field == "DISH"


def test_an_option_may_name_settings_of_its_group_alone() -> None:
    settings = cook("stew", "-S", "fan=true", "-S", "rack=3", "-S", "timer=on", "-S", "salt=3")
    assert (settings.fan, settings.rack, settings.salt) == (True, 3, 1.0)
    assert settings.stove_option == ("timer=on", "salt=3")


def test_the_command_that_a_report_names_gives_the_same_settings() -> None:
    values = {"dish": "soup", "salt": 2.0, "spices": ("dill", "salt"), "lid": False, "note": "for Ann", "rack": 3}
    settings = CookFlags(**values, stove_option=("timer=on",))
    typed = as_command("check", settings)
    assert cook(*shlex.split(typed.removeprefix(command("check")))) == settings


# --- options of a judge ---


def options(*arguments: str) -> dict[str, Any]:
    flags = [part for text in arguments for part in ("-J", text)]
    return read_settings(Settings, make_parser("compile", "", Settings).parse_args(flags)).options()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {}),
        (("score-mode=sampled:5", "joint=true"), {"score_mode": "sampled:5", "joint": True}),
        (("turns=3", "both-orders=false"), {"turns": 3, "both_orders": False}),
        (("together=4", "roles=critic, scientist"), {"together": 4, "roles": ["critic", "scientist"]}),
        (("same-role=annotator",), {"same_role": "annotator"}),
    ],
)
def test_flags_become_options(arguments: tuple[str, ...], expected: dict[str, Any]) -> None:
    assert options(*arguments) == expected


def test_roles_come_from_a_file_and_one_role_can_be_everybodys(tmp_path: Path) -> None:
    roles = tmp_path / "roles.toml"
    roles.write_text('librarian = "You keep books."\ncoach = "You train a team."\n', encoding="utf-8")
    judge: Any = build_preset("chateval", options(f"roles={roles}"))
    assert judge.role_texts == {"librarian": "You keep books.", "coach": "You train a team."}
    assert judge.instructions()["roles['coach']"].startswith("You train a team.")
    judge = build_preset("chateval", options(f"roles={roles}", "same-role=coach"))
    assert judge.role_texts == {"coach-1": "You train a team.", "coach-2": "You train a team."}
    judge = build_preset("chateval", options("same-role=annotator"))
    assert judge.role_texts == {f"annotator-{i}": ROLES["annotator"] for i in (1, 2, 3)}


@pytest.mark.parametrize("name", JUDGES)
def test_every_option_of_a_judge_is_kept_in_its_configuration(name: str) -> None:
    try:
        config = build_preset(name, {}).config()
    except InputError as error:
        pytest.skip(str(error))
    assert set(options_of(name)) - {"same_role"} <= set(config)
