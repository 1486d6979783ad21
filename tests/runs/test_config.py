"""Settings that are flags, settings that are keys of --config alone, and flags that are gone."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import ClassVar

import pytest

from debate_judge.data.errors import InputError
from debate_judge.runs.flags.declaration import command_settings, flag_group, setting
from debate_judge.runs.flags.invocation import command
from debate_judge.runs.flags.parser import as_command, make_parser, settings_of


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
    assert {one.dest for one in parser._actions} == {"help", "config", "dish", "salt", "stove_option"}
    text = " ".join(parser.format_help().split())
    assert "DISH [FLAGS]" in text
    assert "docs/settings.md" in text
    assert "minutes, spices, lid, note, rack, fan." in text


def test_every_setting_is_a_key(tmp_path: Path) -> None:
    path = file(tmp_path, 'dish = "soup"\nminutes = 5\nspices = ["pepper", "dill"]\nlid = false\nfan = true\n')
    found = cook("--config", path)
    assert (found.dish, found.minutes, found.spices, found.lid, found.fan) == (
        "soup",
        5,
        ("pepper", "dill"),
        False,
        True,
    )


def test_flags_win_over_config_and_the_last_config_over_those_before_it(tmp_path: Path) -> None:
    path = file(tmp_path, 'dish = "soup"\nsalt = 3\nminutes = 5\n')
    found = cook("stew", "--config", path, "--config", "minutes=7", "--salt", "2")
    assert (found.dish, found.salt, found.minutes) == ("stew", 2.0, 7)
    assert cook("stew", "--config", "minutes=7", "--config", path).minutes == 5


def test_a_key_may_be_given_by_itself() -> None:
    given = ("minutes=5", "spices=pepper,dill", "lid=false", "note=a=b")
    found = cook("stew", *(part for text in given for part in ("--config", text)))
    assert (found.minutes, found.spices, found.lid, found.note) == (5, ("pepper", "dill"), False, "a=b")


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("minutes=0", "minutes", "at least 1"),
        ("lid=maybe", "lid", "true or false"),
        ("salt=x", "--salt", "a finite number"),
    ],
)
def test_a_value_is_refused_under_the_name_that_the_user_writes(text: str, field: str, expected: str) -> None:
    error = refused("stew", "--config", text)
    assert (error.field, error.expected) == (field, expected)


def test_a_value_of_a_file_is_refused_with_the_file(tmp_path: Path) -> None:
    error = refused("stew", "--config", file(tmp_path, "minutes = 0\n"))
    assert (error.file, error.field) == (str(tmp_path / "cook.toml"), "minutes")


def test_an_unknown_key_is_refused_with_the_nearest_name_or_what_became_of_it(tmp_path: Path) -> None:
    error = refused("stew", "--config", file(tmp_path, "minuts = 5\n"))
    assert (error.file, error.field) == (str(tmp_path / "cook.toml"), "minuts")
    assert "'minutes'" in str(error.remedy)
    alone = refused("stew", "--config", "minuts=5")
    assert (alone.field, alone.remedy) == ("minuts", error.remedy)
    assert "the dish decides" in str(refused("stew", "--config", file(tmp_path, "oil = 5\n")).remedy)


@pytest.mark.parametrize(
    ("argv", "typed"),
    [
        (("--minutes", "5"), "--config minutes=5"),
        (("--minutes=5",), "--config minutes=5"),
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


def test_a_flag_that_is_refused_says_what_became_of_it_and_shows_no_password() -> None:
    assert "the dish decides" in str(refused("stew", "--oil=2").remedy)
    error = refused("stew", "--note", "postgresql://judge:Sesame-9417@db.example/replies")
    assert "Sesame" not in str(error)
    assert "db.example/replies" in str(error.remedy)
    assert (refused().field, refused().problem) == ("DISH", "no value is given")


def test_an_option_may_name_settings_of_its_group_alone() -> None:
    found = cook("stew", "-S", "fan=true", "-S", "rack=3", "-S", "timer=on", "-S", "salt=3")
    assert (found.fan, found.rack, found.salt, found.stove_option) == (True, 3, 1.0, ("timer=on", "salt=3"))


def test_the_command_that_a_report_names_gives_the_same_settings() -> None:
    settings = CookFlags(
        dish="soup", salt=2.0, spices=("dill", "salt"), lid=False, note="for Ann", rack=3, stove_option=("timer=on",)
    )
    typed = as_command("check", settings)
    assert cook(*shlex.split(typed.removeprefix(command("check")))) == settings
