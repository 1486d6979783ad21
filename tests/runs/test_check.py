"""What `check` says of rated data, and the task that it proposes where none is named."""

from __future__ import annotations

import random
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.files.task_file import find_task, read_task
from debate_judge.data.schema import Scale
from debate_judge.runs.check import main
from tests.printed_output import unwrapped


def rated(path: Path, sources: int = 30, tied: bool = False) -> Path:
    """Two answers to each question, rated by two people, with words of people for the columns."""
    draw = random.Random(0)
    lines = ["question;model;answer;helpful_1;helpful_2;safe;id;why"]
    for i in range(sources):
        words = " ".join(draw.sample(["apple", "bridge", "cloud", "door", "engine", "field", "garden", "house"], 8))
        for j, model in enumerate("ab"):
            mean = 3 if tied else draw.choice([2, 3, 4])
            safe = draw.choice(["yes", "No"])
            lines.append(f"What of {words} {i}?;{model};It is {i} {j}.;{mean};{mean + 1};{safe};{2 * i + j};")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_file_without_a_task_gets_one_that_can_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, task_file = rated(tmp_path / "support.csv"), tmp_path / "support.toml"
    assert main([str(path)]) == 0
    shown = capsys.readouterr().out
    assert "columns separated by semicolons" in unwrapped(shown)
    assert "column 'question'" in shown
    assert "one is guessed" in shown
    assert not task_file.exists()
    assert main([str(path), "--write-task", str(task_file)]) == 0
    saved = capsys.readouterr().out
    assert f"saved in {task_file}" in unwrapped(saved)
    assert f"--task {task_file} --lm PROVIDER/MODEL --estimate" in saved  # The task file names the columns.
    assert max(len(line) for line in shown.splitlines() if str(path) not in line) <= 100
    task = read_task(task_file)
    assert {a.name: a.scale for a in task.aspects} == {"helpful": Scale(1, 5), "safe": Scale(0, 1)}
    assert (task.source_label, task.candidate_label) == ("question", "answer")
    # The command that is proposed reads the same data.
    corpus = data.load(str(path), str(task_file), ["source=question", "text=answer"])
    assert len(corpus.groups) == 30
    assert (
        main([str(path), "--task", str(task_file), "--columns", "source=question,text=answer", "--sources", "10"]) == 0
    )
    fewer = capsys.readouterr().out
    assert "10 sources, 20 candidates" in fewer
    assert "by 6 folds" in fewer
    assert "--columns source=question,text=answer --config sources=10 --lm" in fewer


def test_what_was_understood_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = rated(tmp_path / "a.csv")
    with path.open("a") as file:
        file.write("Another question?;a;Same.;1;;yes;61;too short\nAnother question?;b;Same.;1;;;62;\n")
    assert main([str(path), "--columns", "comments.helpful=why,candidate=model"]) == 0
    shown = capsys.readouterr()
    assert "31 sources, 62 candidates (2 a group)" in shown.out
    assert "1 of raters" in shown.out
    assert "1 candidates repeat" in shown.out
    table, _, after = shown.out.partition("alpha")
    rows = {line.split()[0]: line.split() for line in table.splitlines() if line.startswith(("helpful ", "safe "))}
    assert "one rater" in after
    assert rows["helpful"][1:8] == ["1", "to", "5", "62", "0", "1", "to"]
    assert rows["safe"][4:6] == ["61", "1"]
    assert "by 6 folds" in shown.out
    assert "in 80 % of cases" in shown.out
    assert "not read: 'id'" in caplog.text


def test_what_is_guessed_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["question;answer;criterion;score;annotator;share"]
    lines += [
        f"q{i};a{i};{aspect};{low + i % 3};{rater};{i}0%"
        for i in range(30)
        for aspect, low in (("tone", 2), ("truth", 40))
        for rater in ("ann", "bob")
    ]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    assert main([str(path)]) == 0
    shown = unwrapped(capsys.readouterr().out)
    for column, name in (("criterion", "aspect"), ("score", "rating"), ("annotator", "rater")):
        assert f"column {column!r} is read as {name!r}" in shown
    assert "30 sources, 30 candidates (1 a group)" in shown
    assert shown.count("columns separated by semicolons") == 1
    assert caplog.messages == [f"{path}: not read: 'share'"]
    path.write_text("text,tone,truth\nx,1,4/5\ny,2,3/5\n")
    assert main([str(path)]) == 0
    told = unwrapped(capsys.readouterr().out)
    assert "'4/5'" in told


def test_ratings_of_a_task_that_is_known_need_no_guess(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(
        "source\ttext\toverall\tgroundedness\n" + "".join(f"s{i}\tt{i}\t{i % 5 + 1}\tyes\n" for i in range(40))
    )
    assert main([str(path)]) == 0
    shown = capsys.readouterr().out
    assert "task: dialogue" in shown
    assert "--task dialogue --aspects overall --lm" in shown
    assert "groundedness: a compile would refuse" in " ".join(shown.split())
    assert "[0.15, 0.84]" in shown


def test_it_says_where_a_compile_would_refuse_and_what_to_name_where_nothing_is_rated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = rated(tmp_path / "a.csv", sources=8)
    named = ["--task", "summarization", "--columns", "source=question,text=answer"]
    assert main([str(path), *named]) == 0
    shown = capsys.readouterr().out
    assert "--columns coherence=COLUMN" in shown
    assert "--estimate" not in shown
    assert main([str(path), *named[:3], named[3] + ",coherence=helpful"]) == 0
    assert "compile would refuse: too few" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("header", "names"),
    [("tone?,tone!", ["tone", "tone_2"]), ("???,to\x1b[2Jne", ["aspect", "to_2Jne"])],
)
def test_guessed_aspects_have_names_that_a_task_file_and_a_terminal_can_have(
    tmp_path: Path, header: str, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, task = tmp_path / "a.csv", tmp_path / "t.toml"
    path.write_text(f"text,{header}\nx,1,3\ny,2,5\n")
    assert main([str(path), "--write-task", str(task)]) == 0
    assert [aspect.name for aspect in find_task(str(task)).aspects] == names
    assert "\x1b" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("values", "ends", "step"),
    [
        ("0.25 0.5 1", (0, 1), 0.01),
        ("1 2 2.67", (1, 3), 1),
        ("10 55 90", (1, 100), 1),
        ("pass Fail", (0, 1), 1),
        ("-0.5 0.25", (-1, 1), 1),
        ("150 320.5", (150, 321), 1),
    ],
)
def test_scales_are_guessed_from_values(tmp_path: Path, values: str, ends: tuple[float, float], step: float) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,odd/name\n" + "".join(f"text {i},{value}\n" for i, value in enumerate(values.split())))
    assert main([str(path), "--write-task", str(tmp_path / "t.toml")]) == 0
    aspect = tomllib.loads((tmp_path / "t.toml").read_text())["aspects"]["odd_name"]
    assert (aspect["low"], aspect["high"], aspect.get("step", 1)) == (*ends, step)


README = (Path(__file__).parents[2] / "docs" / "your-data.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_commands_of_the_readme_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"What of {i}?,It is {i}.,{i % 5 + 1}\n" for i in range(40))
    Path("ratings.csv").write_text(f"question,answer,score_help\n{rows}")
    commands = [shlex.split(line, comments=True) for line in blocks("sh")[0].splitlines()]
    assert len(commands) == 3
    for program, name, *arguments in commands:
        assert (program, name) == ("debate", "check")
        assert main(arguments) == 0
    assert "40 sources" in capsys.readouterr().out


def test_the_files_of_the_readme_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "support.toml").write_text(blocks("toml")[0])
    assert read_task(tmp_path / "support.toml").aspect("helpfulness").scale == Scale(1, 5, on_steps=True)
    (tmp_path / "groups.json").write_text(f"[{blocks('json')[0]}]")
    corpus = data.load(str(tmp_path / "groups.json"), "summarization")
    assert corpus.groups[0].candidates[0].ratings == {"coherence": (4.0, 5.0, 4.0), "fluency": (5.0,)}


def test_it_says_how_well_raters_agree_and_names_no_command_that_would_be_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    lines = [f"s{i // 3},text {i},{i % 3 + 1};{i % 3 + 1};{i % 3 + 2},3\n" for i in range(60)]
    path.write_text("source,text,tone,clear\n" + "".join(lines))
    task = tmp_path / "t.toml"
    assert main([str(path), "--write-task", str(task)]) == 0
    shown = capsys.readouterr().out
    row = next(line.split() for line in shown.splitlines() if line.startswith("tone ") and len(line.split()) == 3)
    # Ratings 1 1 2, 2 2 3 and 3 3 4, 20 times each: a mean squared difference of 2/3 within and 1.788 over all.
    assert row[1] == "0.63"
    assert row[2] == "1.00", "all raters rank the candidates of a source alike"
    path.write_text("source,text,tone\n" + "s,x,1\nt,y,2\n")
    assert main([str(path), "--task", str(task)]) == 0
    assert "--estimate" not in capsys.readouterr().out
