"""The console script: help, version, unknown commands, and a server that is not running."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.cli import main
from debate_judge.programs.lm.http.address import COMPATIBLE, usual_address
from debate_judge.runs.flags.invocation import COMMANDS
from debate_judge.runs.flags.lm import require_server


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"debate {metadata.version('debate-judge')}\n"


@pytest.mark.parametrize("asked", ["help", "--help", "-h"])
def test_help_names_the_commands(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([asked]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize("asked", [["scor"], ["help", "scor"]])
def test_an_unknown_command_is_answered_with_its_neighbour(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(asked) == 2
    assert "unknown command 'scor'; did you mean 'score'?" in capsys.readouterr().err


@pytest.mark.parametrize(("asked", "unbuffered"), [("help", "1"), ("help score", ""), ("scor", "")])
def test_output_that_is_not_read_to_its_end_is_no_error(asked: str, unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    out, err = (subprocess.PIPE, write) if asked == "scor" else (write, subprocess.PIPE)
    code = "import sys; from debate_judge.optimize.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *asked.split()],
        stdout=out,
        stderr=err,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stdout or b"", done.stderr or b"") == (141, b"", b"")


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_server_of_this_machine_that_is_not_running_is_told_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"http://localhost:{closed_port()}/v1"
    for command in ("compile", "compare"):
        assert main([command, "--lm", "openai/m", "--api-base", address, "--store", str(tmp_path)]) == 3
        shown = capsys.readouterr().err
        assert "field '--api-base': the LM failed: no server listens there" in shown
        assert address in shown
    score = ["score", "x", "--in", "x.csv", "--out", "y.csv", "--lm", "openai/m", "--api-base", address]
    assert main([*score, "--store", str(tmp_path)]) == 3
    assert "no server listens there" in capsys.readouterr().err


def test_a_second_lm_that_is_not_running_is_told_before_the_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOSTED_VLLM_API_BASE", raising=False)
    monkeypatch.setitem(COMPATIBLE, "hosted_vllm", f"http://127.0.0.1:{closed_port()}/v1")
    command = ["compile", "--reflection-lm", "hosted_vllm/m", "--store", str(tmp_path)]
    assert main(command) == 3
    assert "field '--reflection-lm': the LM failed: no server listens there" in capsys.readouterr().err


def test_answers_of_earlier_runs_need_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"http://127.0.0.1:{closed_port()}/v1"
    (tmp_path / "replies" / "openai_m").mkdir(parents=True)
    (tmp_path / "replies" / "openai_m" / "0001.jsonl").touch()
    require_server("openai/m", address, str(tmp_path))
    monkeypatch.setenv("OPENAI_API_BASE", address)
    with pytest.raises(InputError, match="field 'OPENAI_API_BASE': the LM failed: no server listens there"):
        require_server("openai/other", None, str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_server("openai/other", f"http://127.0.0.1:{server.getsockname()[1]}", str(tmp_path))


def test_the_usual_address_of_a_provider_is_asked_for_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"http://127.0.0.1:{closed_port()}/v1"
    monkeypatch.delenv("HOSTED_VLLM_API_BASE", raising=False)
    monkeypatch.setitem(COMPATIBLE, "hosted_vllm", address)
    with pytest.raises(InputError, match="field '--api-base': the LM failed: no server listens there"):
        require_server("hosted_vllm/m", None, str(tmp_path))
    # LiteLLM reads the same variable for both.
    monkeypatch.setenv("OLLAMA_API_BASE", address)
    for spec in ("ollama/m", "ollama_chat/m"):
        with pytest.raises(InputError, match="field 'OLLAMA_API_BASE': the LM failed: no server listens there"):
            require_server(spec, None, str(tmp_path))
    monkeypatch.delenv("OLLAMA_API_BASE")
    assert usual_address("ollama_chat/m") == "http://localhost:11434"
    assert usual_address("anthropic/m") is None
    require_server("anthropic/m", None, str(tmp_path))


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-"])
def test_a_stream_that_was_closed_before_is_no_failure(closed: str, tmp_path: Path) -> None:
    (tmp_path / "rated.csv").write_text("text,tone\na,1\nb,2\nc,5\n", encoding="utf-8")
    start = f"{sys.executable} -c 'from debate_judge.optimize.cli import main; raise SystemExit(main())'"
    done = subprocess.run(f"{start} check rated.csv {closed}", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("tone" in done.stdout) == (closed == "2>&-")
