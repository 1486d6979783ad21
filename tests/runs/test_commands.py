"""The console script: help, closed streams, servers that are not running, and settings by flags and --config."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.cli import main
from debate_judge.optimize.settings import Settings
from debate_judge.programs import JUDGES, build_preset, options_of
from debate_judge.programs.chateval import ROLES
from debate_judge.programs.lm.settings import CALLED_DIRECTLY, default_address
from debate_judge.runs.command_line import COMMANDS, command, with_invoked_commands
from debate_judge.runs.flags import as_command, make_parser, read_settings
from debate_judge.runs.score import ScoreFlags
from debate_judge.runs.shared_flags import require_server

ROOT = Path(__file__).parents[2]
CONSOLE_SCRIPT = [sys.executable, "-c", "import sys; from debate_judge.optimize.cli import main; sys.exit(main())"]


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"debate {metadata.version('debate-judge')}\n"
    for form in ("help", "--help", "-h"):
        assert main([form]) == 0
        text = capsys.readouterr().out
        assert all(f"  {name} " in text for name in COMMANDS)


@pytest.mark.integration
@pytest.mark.parametrize(("arguments", "unbuffered"), [("help score", ""), ("scor", "1")])
def test_output_that_is_not_read_to_its_end_is_no_error(arguments: str, unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    broken, whole = ("stderr", "stdout") if arguments == "scor" else ("stdout", "stderr")
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    streams = {broken: write, whole: subprocess.PIPE}
    done = subprocess.run([*CONSOLE_SCRIPT, *arguments.split()], env=environment, check=False, **streams)
    os.close(write)
    assert (done.returncode, getattr(done, whole)) == (141, b"")


@pytest.mark.integration
def test_a_server_that_is_not_running_is_named_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://localhost:{taken.getsockname()[1]}/v1"
    monkeypatch.setitem(CALLED_DIRECTLY, "hosted_vllm", address)
    monkeypatch.delenv("HOSTED_VLLM_API_BASE", raising=False)
    assert main(["compile", "--lm", "openai/m", "--api-base", address, "--store", str(tmp_path)]) == 3
    message = capsys.readouterr().err
    assert "field '--api-base': the LM failed: no server listens there" in message
    assert address in message
    # Without an address it is that of the environment, by the names of LiteLLM and of the provider's own client, or
    # the provider's usual one.
    for variable, spec in {"OPENAI_API_BASE": "openai/o", "OPENAI_BASE_URL": "openai/o", "": "hosted_vllm/m"}.items():
        with monkeypatch.context() as patch:
            patch.setenv(variable or "UNUSED", address)
            with pytest.raises(InputError, match=f"field '{variable or '--api-base'}': .*no server listens"):
                require_server(spec, None, str(tmp_path))
    assert default_address("ollama_chat/m") == "http://localhost:11434"
    # Answers of earlier runs need none, nor does a provider; and there is one that is running.
    (tmp_path / "replies" / "openai_m").mkdir(parents=True)
    (tmp_path / "replies" / "openai_m" / "0001.jsonl").touch()
    require_server("openai/m", address, str(tmp_path))
    require_server("anthropic/m", None, str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_server("openai/o", f"http://127.0.0.1:{server.getsockname()[1]}", str(tmp_path))


def test_other_processes_are_told_of_the_console_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["notebook.py"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert [command(name) for name in COMMANDS] == [f"debate {name}" for name in COMMANDS]
    assert with_invoked_commands("python runs/score.py --out x") == "debate score --out x"
    # A path with a blank is quoted.
    root = tmp_path / "my project"
    monkeypatch.setattr("debate_judge.runs.command_line._ROOT", root)
    monkeypatch.setattr(sys, "argv", [str(root / "optimize/compile.py")])
    assert command("score") == f"python '{root / 'runs/score.py'}'"


def settings(*argv: str) -> Settings:
    return read_settings(Settings, make_parser("compile", "Compile a judge.", Settings), argv)[0]


def file(folder: Path, text: str) -> str:
    path = folder / "compile.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_every_flag_is_a_key_of_a_file_and_flags_win_over_it(tmp_path: Path) -> None:
    path = file(tmp_path, 'data = "x.csv"\ntrials = 5\naspects = ["tone"]\npreflight = false\nmax-unscored = 0.5\n')
    expected = Settings(data="x.csv", trials=5, aspects=("tone",), preflight=False, max_unscored=0.5)
    assert settings("--config", path) == expected
    flags = "--data x.csv --trials 5 --aspects tone --no-preflight --max-unscored 0.5"
    assert settings(*flags.split()) == expected
    assert settings("--data", "y.csv", "--config", path, "--trials", "7") == replace(expected, data="y.csv", trials=7)
    path = file(tmp_path, 'in = "new.csv"\nprogram = "mine"\nout = "s.csv"\n')
    given, _ = read_settings(ScoreFlags, make_parser("score", "", ScoreFlags), ["--config", path])
    assert (given.input, given.program, given.out) == ("new.csv", "mine", "s.csv")


def test_an_error_names_a_setting_as_it_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["compile", "--estimate", "--store", str(tmp_path)]
    assert main([*data, "--budget", "much"]) == 2
    assert "error: field '--budget': the budget" in capsys.readouterr().err
    path = file(tmp_path, '# what it may cost\nbudget = "much"\n')
    assert main([*data, "--config", path]) == 2
    assert f"error: {path}, line 2, field 'budget': the budget" in capsys.readouterr().err
    with pytest.raises(InputError) as caught:
        Settings(max_rounds=-1)
    assert str(caught.value.in_python()).startswith("field 'max_rounds': not a value of this setting")
    error = InputError(
        "no", remedy="give --prices FILE, or -J turns=2; --no-preflight starts without; `debate check x`"
    )
    keywords = "give prices=FILE, or judge_option=turns=2; preflight=False starts without; `debate check x`"
    assert error.in_python().remedy == keywords


@pytest.mark.integration
def test_a_misspelt_provider_is_refused_before_litellm_is_imported() -> None:
    code = "import sys; from debate_judge.optimize.cli import main; print(main(sys.argv[1:]), 'litellm' in sys.modules)"
    command = [sys.executable, "-c", code, "compile", "--lm", "opena/gpt-5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"
    assert "did you mean 'openai'?" in done.stderr


def test_the_command_that_a_report_names_gives_the_same_settings() -> None:
    values: dict[str, Any] = {"data": "my file.csv", "aspects": ("tone", "help"), "max_unscored": 0.5, "trials": 3}
    expected = Settings(**values, seed=2, judge_option=("turns=2", "both-orders=false"))
    typed = as_command("compile", expected)
    assert settings(*shlex.split(typed.removeprefix(command("compile")))) == expected


# --- options of a judge ---


def options(*texts: str) -> dict[str, Any]:
    return settings(*(part for text in texts for part in ("-J", text))).options()


def test_roles_come_from_a_file_or_by_name_also_the_same_for_all(tmp_path: Path) -> None:
    roles = tmp_path / "roles.toml"
    roles.write_text('librarian = "You keep books."\ncoach = "You train a team."\n', encoding="utf-8")
    judge: Any = build_preset("chateval", options(f"roles={roles}"))
    assert judge.role_texts == {"librarian": "You keep books.", "coach": "You train a team."}
    assert judge.instructions()["roles['coach']"].startswith("You train a team.")
    judge = build_preset("chateval", options("roles=annotator,annotator"))
    assert judge.role_texts == {f"annotator-{i}": ROLES["annotator"] for i in (1, 2)}


@pytest.mark.parametrize("name", JUDGES)
def test_every_option_of_a_judge_is_kept_in_its_configuration(name: str) -> None:
    try:
        config = build_preset(name, {}).config()
    except InputError as error:
        pytest.skip(str(error))
    assert set(options_of(name)) <= set(config)
