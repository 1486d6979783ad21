"""The console script: help, closed streams, servers that are not running, and what a command is called in hints."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from debate_judge.data import errors
from debate_judge.data.errors import InputError
from debate_judge.optimize.cli import main
from debate_judge.programs.lm.http.address import OPENAI_COMPATIBLE, default_address
from debate_judge.runs.flags.invocation import COMMANDS, command, with_invoked_commands
from debate_judge.runs.flags.lm import require_server

ROOT = Path(__file__).parents[2]
CONSOLE_SCRIPT = [sys.executable, "-c", "import sys; from debate_judge.optimize.cli import main; sys.exit(main())"]


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"debate {metadata.version('debate-judge')}\n"
    for form in ("help", "--help", "-h"):
        assert main([form]) == 0
        text = capsys.readouterr().out
        assert all(f"  {name} " in text for name in COMMANDS)


# --- streams that are closed ---


@pytest.mark.integration
@pytest.mark.parametrize(("arguments", "unbuffered"), [("help", "1"), ("help score", ""), ("scor", "")])
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
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-"])
def test_a_stream_that_was_closed_before_is_no_failure(closed: str, tmp_path: Path) -> None:
    (tmp_path / "rated.csv").write_text("text,tone\na,1\nb,2\nc,5\n", encoding="utf-8")
    start = f"{sys.executable} -c '{CONSOLE_SCRIPT[2]}'"
    done = subprocess.run(f"{start} check rated.csv {closed}", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("tone" in done.stdout) == (closed == "2>&-")


# --- a server that is not running ---


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> str:
    """The usual address of vLLM, at which no server listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://localhost:{taken.getsockname()[1]}/v1"
    monkeypatch.setitem(OPENAI_COMPATIBLE, "hosted_vllm", address)
    monkeypatch.delenv("HOSTED_VLLM_API_BASE", raising=False)
    return address


@pytest.mark.integration
def test_commands_name_a_server_that_is_not_running_before_anything_is_loaded(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lm, store = ["--lm", "openai/m", "--api-base", address], ["--store", str(tmp_path)]
    for field, arguments in (
        ("--api-base", ["compile", *lm]),
        ("--api-base", ["compare", *lm]),
        ("--api-base", ["score", "x", "--in", "x", "--out", "y", *lm]),
        ("--reflection-lm", ["compile", "--reflection-lm", "hosted_vllm/m"]),
    ):
        assert main([*arguments, *store]) == 3
        message = capsys.readouterr().err
        assert f"field '{field}': the LM failed" in message
        assert address in message


@pytest.mark.integration
def test_which_server_must_be_running(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Answers of earlier runs need none.
    (tmp_path / "replies" / "openai_m").mkdir(parents=True)
    (tmp_path / "replies" / "openai_m" / "0001.jsonl").touch()
    require_server("openai/m", address, str(tmp_path))
    # Without an address it is that of the environment, by LiteLLM's variables, or the provider's usual one.
    monkeypatch.setenv("OPENAI_API_BASE", address)
    monkeypatch.setenv("OLLAMA_API_BASE", address)
    fields = {"openai/o": "OPENAI_API_BASE", "ollama_chat/m": "OLLAMA_API_BASE", "hosted_vllm/m": "--api-base"}
    for spec, field in fields.items():
        with pytest.raises(InputError, match=f"field '{field}': .*no server listens"):
            require_server(spec, None, str(tmp_path))
    monkeypatch.delenv("OLLAMA_API_BASE")
    assert default_address("ollama_chat/m") == "http://localhost:11434"
    require_server("anthropic/m", None, str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_server("openai/o", f"http://127.0.0.1:{server.getsockname()[1]}", str(tmp_path))


# --- what a command is called ---


@pytest.mark.integration
def test_hints_name_a_command_as_it_was_started(tmp_path: Path) -> None:
    def text(*arguments: str, folder: Path) -> str:
        called = [sys.executable, *arguments, "--help"]
        return subprocess.run(called, cwd=folder, capture_output=True, text=True, check=True).stdout

    inside = text("score.py", folder=ROOT / "runs")
    assert inside.startswith("usage: python score.py [-h]")
    assert "\n    python score.py runs/store" in inside
    module = text("-m", "debate_judge.runs.after.next", folder=tmp_path)
    assert module.startswith("usage: python -m debate_judge.runs.after.next [-h]")
    assert "\n    python -m debate_judge.runs.after.next EXPORT" in module


def test_other_processes_are_told_of_the_console_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["notebook.py"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert [command(name) for name in COMMANDS] == [f"debate {name}" for name in COMMANDS]
    assert with_invoked_commands("python runs/score.py --out x") == "debate score --out x"
    # A path with a blank is quoted.
    root = tmp_path / "my project"
    monkeypatch.setattr("debate_judge.runs.flags.invocation._ROOT", root)
    monkeypatch.setattr(sys, "argv", [str(root / "optimize/compile.py")])
    assert command("score") == f"python '{root / 'runs/score.py'}'"


def test_a_checkout_is_installed_from_its_folder_and_a_wheel_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert errors.install_hint("metrics").startswith("pip install -e '.[metrics]'")
    monkeypatch.setattr(errors, "__file__", "/site-packages/debate_judge/data/errors.py")
    assert errors.install_hint("metrics") == "pip install 'debate-judge[metrics]'"
