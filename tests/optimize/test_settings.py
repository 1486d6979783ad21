"""Settings: where they come from, which of two wins, and what is refused with which words."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.compile import build_parser
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import tuner_named
from debate_judge.runs import score
from debate_judge.runs.comparison.flags import metric_of
from debate_judge.runs.flags.declared import spelled
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.flags.parser import make_parser, read
from debate_judge.runs.score import ScoreFlags
from tests.config_keys import keys


def settings(*given: str) -> Settings:
    return read(Settings, build_parser().parse_args(given))


def config(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_flags_everything_is_the_default() -> None:
    assert settings() == Settings()
    assert Settings().lm == "offline"


def flags(parser: ArgumentParser) -> list[str]:
    return [action.option_strings[-1] for action in parser._actions if action.option_strings and action.dest != "help"]


def test_the_flags_of_a_compile_fit_one_screen() -> None:
    parser = build_parser()
    assert flags(parser) == [
        *("--estimate", "--data", "--columns", "--task", "--aspects", "--judge", "-J", "--lm", "--api-base"),
        *("--concurrency", "--rpm", "--budget", "--tuner", "--reflection-lm", "--effort", "--max-rounds", "--metric"),
        *("--examples", "--folds", "--held-out", "--seed", "--name", "--tracking-uri", "--store", "--config"),
    ]
    assert len(flags(parser)) <= 25
    assert len(parser.format_help().splitlines()) <= 52


def test_the_flags_of_score_fit_one_screen() -> None:
    parser = make_parser("score", score.__doc__ or "", ScoreFlags)
    assert len(flags(parser)) <= 16
    assert len(parser.format_help().splitlines()) <= 52


@pytest.mark.parametrize(
    ("given", "level", "correlation"),
    [
        ("auto/spearman", "auto", "spearman"),
        ("summary/kendall", "summary", "kendall"),
        ("pearson", "auto", "pearson"),
        ("sample", "sample", "spearman"),
    ],
)
def test_a_metric_is_a_level_and_a_correlation(given: str, level: str, correlation: str) -> None:
    found = settings("--metric", given)
    assert (found.chosen_by.level, found.chosen_by.correlation) == (level, correlation)
    assert found.metric == f"{level}/{correlation}", "however it is written, it is the same compile"


def test_a_comparison_keeps_the_order_of_its_correlations() -> None:
    found = metric_of("system/kendall,spearman")
    assert (found.level, found.correlations, found.correlation) == ("system", ("kendall", "spearman"), "kendall")
    with pytest.raises(InputError, match="not a metric"):
        metric_of("mae")


@pytest.mark.parametrize("measure", ["mae", "ccc", "kappa"])
def test_a_compile_may_maximize_closeness(measure: str) -> None:
    found = settings("--metric", f"summary/{measure}").chosen_by
    assert (found.closest, found.level) == (measure, "summary")
    # What is shown of agreement stays a correlation.
    assert found.correlation == "spearman"
    assert settings("--metric", measure).metric == f"auto/{measure}"


@pytest.mark.parametrize(
    "given",
    [
        *("", "summary/sample", "spearman/pearson", "summary/spearman/auto", "system/spearman"),
        *("mae/spearman", "spearman/mae", "mae,ccc"),
    ],
)
def test_what_is_no_metric_is_refused(given: str) -> None:
    with pytest.raises(InputError, match="not a metric") as caught:
        settings("--metric", given)
    assert caught.value.field == "--metric"


@pytest.mark.parametrize(
    ("flag", "instead"),
    [
        ("--level=summary", "--metric"),
        ("--objective=kendall", "--metric"),
        ("--repeats=3", "folds"),
        ("--choose=dev-1se", "removed"),
        ("--deadline=60", "timeout"),
        ("--attempt=60", "timeout"),
        ("--judge-option=turns=3", "-J"),
        ("--score-mode=expected", "--config score-mode=expected"),
        ("--guide-words=100", "--config guide-words=100"),
        ("--no-preflight", "--config preflight=false"),
        ("--aspects-of=x", None),
    ],
)
def test_an_old_flag_says_what_became_of_it(flag: str, instead: str | None) -> None:
    if instead is None:
        with pytest.raises(SystemExit):
            settings(flag)
        return
    with pytest.raises(InputError) as caught:
        settings(flag)
    assert caught.value.field == flag.partition("=")[0]
    assert instead in str(caught.value.remedy)


def test_an_old_key_says_what_became_of_it(tmp_path: Path) -> None:
    assert "--metric" in str(refused(tmp_path, 'level = "summary"\n').remedy)


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    path = config(tmp_path, 'lm = "openai/m"\nseed = 7\nmax-rounds = 2\n')
    found = settings("--config", str(path), "--seed", "8")
    assert (found.lm, found.seed, found.max_rounds, found.trials) == ("openai/m", 8, 2, Settings().trials)


def test_a_flag_may_bring_a_default_back(tmp_path: Path) -> None:
    path = config(tmp_path, 'seed = 7\nlm = "openai/m"\n')
    assert settings("--config", str(path), "--seed", "0", "--lm", "offline") == Settings()


@pytest.mark.parametrize("given", ["coherence,relevance", " coherence , relevance ,", "coherence,,relevance"])
def test_aspects_are_separated_by_commas(given: str) -> None:
    assert settings("--aspects", given).aspects == ("coherence", "relevance")


def test_a_file_may_hold_every_kind_of_setting(tmp_path: Path) -> None:
    path = config(
        tmp_path,
        'aspects = ["coherence"]\nshared = true\nmax_rounds = 0\napi-base = "http://localhost:8000/v1"\n'
        "rpm = 60\ntpm = 1.5e5\n",
    )
    found = settings("--config", str(path))
    assert found.aspects == ("coherence",)
    assert found.shared is True
    assert (found.max_rounds, found.api_base) == (0, "http://localhost:8000/v1")
    assert (found.rpm, found.tpm) == (60.0, 150_000.0)
    assert settings("--aspects", "coherence").aspects == found.aspects


def refused(folder: Path, text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        settings("--config", str(config(folder, text)))
    assert caught.value.file == str(folder / "settings.toml")
    return caught.value


@pytest.mark.parametrize(
    ("key", "near"), [("trails", "trials"), ("max-round", "max-rounds"), ("Judge", "judge"), ("aspect", "aspects")]
)
def test_an_unknown_key_is_refused_with_the_nearest_name(tmp_path: Path, key: str, near: str) -> None:
    error = refused(tmp_path, f"{key} = 1\n")
    assert error.field == key
    assert near in str(error.remedy)


def test_a_key_that_resembles_nothing_is_refused_without_a_guess(tmp_path: Path) -> None:
    assert refused(tmp_path, "xyzzy = 1\n").remedy is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('seed = "1"', "a whole number"),
        ("seed = 1.5", "a whole number"),
        ("seed = true", "a whole number"),
        ("shared = 1", "true or false"),
        ('shared = "yes"', "true or false"),
        ("lm = 4", "a text"),
        ("lm = true", "a text"),
        ('aspects = "coherence"', "a list of texts"),
        ("aspects = [1]", "a list of texts"),
        ('rpm = "fast"', "a number"),
        ("rpm = true", "a number"),
        ("data = 1979-05-27", "a text"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(tmp_path: Path, line: str, expected: str) -> None:
    error = refused(tmp_path, line + "\n")
    assert error.field == line.split(" ")[0]
    assert error.expected == expected


@pytest.mark.parametrize(("text", "line"), [("seed =", None), ("seed = 1\nseed = 2\n", 2), ("[a\n", 1)])
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, text: str, line: int | None) -> None:
    error = refused(tmp_path, text)
    assert "not valid TOML" in error.problem
    assert error.line == line


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.toml: no such file"):
        settings("--config", str(tmp_path / "nothing.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"binary\.toml: not UTF-8"):
        settings("--config", str(tmp_path / "binary.toml"))


@pytest.mark.parametrize(
    ("field", "low"), [("trials", 1), ("max_rounds", 0), ("concurrency", 1), ("resamples", 100), ("seed", 0)]
)
def test_a_number_below_its_range_is_refused_and_its_end_is_not(field: str, low: int) -> None:
    assert getattr(settings(*keys(**{field: low})), field) == low
    with pytest.raises(InputError) as caught:
        settings(*keys(**{field: low - 1}))
    assert caught.value.field == spelled(Settings, field)
    assert caught.value.expected == f"at least {low}"
    assert caught.value.found == low - 1


@pytest.mark.parametrize(
    ("flag", "value", "near"),
    [
        ("--metric", "summary/spearmann", "spearman"),
        ("--metric", "tau", None),
        ("--metric", "sumary/spearman", "summary"),
        ("--effort", "hevy", "heavy"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(flag: str, value: str, near: str | None) -> None:
    with pytest.raises(InputError) as caught:
        settings(flag, value)
    assert caught.value.field == flag
    assert (caught.value.remedy is None) if near is None else (f"'{near}'" in str(caught.value.remedy))


def test_the_names_that_are_known_are_listed() -> None:
    with pytest.raises(InputError) as caught:
        tuner_named("guides")
    assert caught.value.expected == "one of guide, mipro, gepa, none"


@pytest.mark.parametrize("name", ["a b", "a/b", "..\\x", "", "ä:b"])
def test_a_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="not a name"):
        Settings(name=name)


@pytest.mark.parametrize(
    ("flags", "found", "expected"),
    [
        (("--seed", "one"), "one", "a whole number"),
        (("--folds", "1.5"), "1.5", "a whole number"),
        (("--rpm", "fast"), "fast", "a number"),
        (("--rpm", "inf"), float("inf"), "a finite number"),
    ],
)
def test_a_flag_that_is_no_number_is_refused_with_what_stands_there(
    flags: tuple[str, str], found: object, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        settings(*flags)
    assert (caught.value.field, caught.value.found, caught.value.expected) == (flags[0], found, expected)


def test_a_value_of_the_file_is_refused_with_its_file_and_key(tmp_path: Path) -> None:
    error = refused(tmp_path, "seed = 3\nmax-unscored = 2\n")
    assert (error.field, error.expected, error.found) == ("max-unscored", "a number from 0 to 1", 2)
    assert "did you mean 'kendall'" in str(refused(tmp_path, 'metric = "kendal"\n').remedy)


def test_help_says_every_default_and_choice() -> None:
    text = " ".join(build_parser().format_help().split())
    for part in (
        "--effort EFFORT how much is tried: light, medium, heavy (default: light)",
        "(default: runs/store)",
        "LM calls in flight at once (default: 16)",
        "--seed N seed of every random choice (default: 0)",
    ):
        assert part in text


def test_an_unknown_flag_is_refused_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(["--maxrounds=1"])
    assert caught.value.code == 2
    assert "did you mean '--max-rounds'?" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "instead"), [("--batch-rounds=2", "together"), ("--granularity=half", "rounds")])
def test_a_removed_flag_is_refused_with_what_became_of_it(flag: str, instead: str) -> None:
    with pytest.raises(InputError) as caught:
        build_parser().parse_args([flag])
    assert "removed" in str(caught.value.remedy)
    assert instead in str(caught.value.remedy)


def test_a_setting_that_must_be_given_is_asked_for() -> None:
    with pytest.raises(InputError, match="no value is given") as caught:
        ScoreFlags(source="texts.jsonl", out="scores.jsonl")
    assert caught.value.field == "EXPORT"
    assert "folder of an export" in str(caught.value.expected)


@pytest.mark.parametrize(
    ("given", "attempt", "deadline"), [({}, 300, 900), ({"timeout": 5000.0}, 5000, 15000), ({"timeout": 0.5}, 0.5, 1.5)]
)
def test_a_call_may_take_three_times_as_long_as_an_attempt(
    given: dict[str, float], attempt: float, deadline: float
) -> None:
    options = limits(Settings(**given))
    assert (options.attempt, options.deadline) == (attempt, deadline)
