"""What `check` says of rated data, and the task that it proposes where none is named."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.schema import Scale
from debate_judge.data.tasks import read_task
from debate_judge.runs.check import main
from tests.printed_output import unwrapped


def rated(path: Path, sources: int = 30) -> Path:
    """Two answers to each question, rated by two people, with words of people for the columns."""
    rng = random.Random(0)
    lines = ["question;model;answer;helpful_1;helpful_2;safe;id;why"]
    for i in range(sources):
        words = " ".join(rng.sample(["apple", "bridge", "cloud", "door", "engine", "field", "garden", "house"], 8))
        for j, model in enumerate("ab"):
            mean, safe = rng.choice([2, 3, 4]), rng.choice(["yes", "No"])
            lines.append(f"What of {words} {i}?;{model};It is {i} {j}.;{mean};{mean + 1};{safe};{2 * i + j};")
    path.write_text("\n".join(lines) + "\n")
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What the command prints about a file that it can read."""
    assert main([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_a_file_without_a_task_gets_one_that_can_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, task_file = rated(tmp_path / "support.csv"), tmp_path / "support.toml"
    text = output(capsys, path)
    assert unwrapped(text).count("columns separated by semicolons") == 1
    assert "task: drafted" in text
    assert not task_file.exists()
    saved = output(capsys, path, "--write-task", task_file)
    assert f"--task {task_file} --lm PROVIDER/MODEL --estimate" in saved  # The task file names the columns.
    assert max(len(line) for line in text.splitlines() if str(path) not in line) <= 100
    task = read_task(task_file)
    assert {a.name: a.scale for a in task.aspects} == {"helpful": Scale(1, 5), "safe": Scale(0, 1)}
    assert (task.source_label, task.candidate_label) == ("question", "answer")
    # The command that is proposed reads the same data.
    assert len(data.load(str(path), str(task_file), ["source=question", "text=answer"]).groups) == 30
    few = output(capsys, path, "--task", task_file, "--columns", "source=question,text=answer", "--sources", "10")
    assert "10 sources, 20 candidates" in few
    assert "--columns source=question,text=answer --sources 10 --lm" in few


def test_what_was_understood_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = rated(tmp_path / "a.csv")
    with path.open("a") as file:
        file.write("Another question?;a;Same.;1;;yes;61;too short\nAnother question?;b;Same.;1;;;62;\n")
    text = output(capsys, path, "--columns", "comments.helpful=why,candidate=model")
    assert "31 sources, 62 candidates (2 per group)" in text
    table = text.partition("one rater\n")[2]
    rows = {line.split()[0]: line.split() for line in table.splitlines() if line.startswith(("helpful ", "safe "))}
    assert rows["helpful"][1:8] == ["1", "to", "5", "62", "0", "1", "to"]
    assert rows["safe"][4:6] == ["61", "1"]
    assert "not read: 'id'" in caplog.text
    # A cell that is no rating is quoted.
    path.write_text("text,tone,truth\nx,1,4/5\ny,2,3/5\n")
    assert "'4/5'" in output(capsys, path)


def test_ratings_of_a_task_that_is_known_need_no_guess(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    rows = "".join(f"s{i},t{i},{i % 5 + 1},yes\n" for i in range(40))
    path.write_text(f"source,text,overall,groundedness\n{rows}")
    text = output(capsys, path)
    # One text a source: a correlation over all that are held out.
    assert all(part in text for part in ("task: dialogue", "--task dialogue --aspects overall --lm", "[0.15, 0.84]"))
    assert "groundedness: cannot be compiled" in unwrapped(text)


def test_it_says_how_well_raters_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Ratings 1 1 2, 2 2 3 and 3 3 4, 20 times each: a mean squared difference of 2/3 within and 1.788 over all.
    rows = "".join(f"s{i // 3},text {i},{i % 3 + 1};{i % 3 + 1};{i % 3 + 2}\n" for i in range(60))
    (tmp_path / "a.csv").write_text(f"source,text,tone\n{rows}")
    # All raters rank the candidates of a source alike.
    lines = [line.split() for line in output(capsys, tmp_path / "a.csv").splitlines()]
    assert ["0.63", "1.00"] in [line[-2:] for line in lines if line[:1] == ["tone"]]


def test_no_command_is_proposed_that_would_be_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = rated(tmp_path / "a.csv", sources=8)
    columns = "source=question,text=answer"
    text = output(capsys, path, "--task", "summarization", "--columns", columns)
    assert "--columns coherence=COLUMN" in text
    assert "--estimate" not in text
    text = output(capsys, path, "--task", "summarization", "--columns", f"{columns},coherence=helpful")
    assert "cannot be compiled: too few" in text
    assert "--estimate" not in text


def test_the_numbers_of_a_few_tickets_are_no_ratings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (tmp_path / "support.csv").write_text(page.partition("```csv\n")[2].partition("```")[0])
    lines = [line.split() for line in output(capsys, tmp_path / "support.csv").splitlines()]
    assert ["ticket", "not", "read"] in lines


def test_the_files_of_the_page_about_data_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "your-data.md").read_text(encoding="utf-8")
    toml, group = (page.partition(f"```{language}\n")[2].partition("```")[0] for language in ("toml", "json"))
    (tmp_path / "support.toml").write_text(toml)
    assert read_task(tmp_path / "support.toml").aspect("helpfulness").scale == Scale(1, 5, on_steps=True)
    (tmp_path / "groups.json").write_text(f"[{group}]")
    corpus = data.load(str(tmp_path / "groups.json"), "summarization")
    assert corpus.groups[0].candidates[0].ratings == {"coherence": (4.0, 5.0, 4.0), "fluency": (5.0,)}
