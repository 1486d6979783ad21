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
from debate_judge.programs.lm.http.address import OPENAI_COMPATIBLE, default_address
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


@pytest.mark.integration
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


@pytest.mark.integration
def test_a_server_of_this_machine_that_is_not_running_is_told_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address, store = f"http://localhost:{closed_port()}/v1", ["--store", str(tmp_path)]
    monkeypatch.setitem(OPENAI_COMPATIBLE, "hosted_vllm", address)
    monkeypatch.delenv("HOSTED_VLLM_API_BASE", raising=False)
    there = ["--lm", "openai/m", "--api-base", address, *store]
    calls = {
        "--api-base": [["compile", *there], ["compare", *there], ["score", "x", "--in", "x", "--out", "y", *there]]
    }
    calls["--reflection-lm"] = [["compile", "--reflection-lm", "hosted_vllm/m", *store]]
    for field, arguments in ((field, arguments) for field, several in calls.items() for arguments in several):
        assert main(arguments) == 3
        shown = capsys.readouterr().err
        assert f"field '{field}': the LM failed" in shown
        assert address in shown


@pytest.mark.integration
def test_which_server_must_be_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, silent = f"http://127.0.0.1:{closed_port()}/v1", "the LM failed: no server listens there"
    # Answers of earlier runs need none.
    (tmp_path / "replies" / "openai_m").mkdir(parents=True)
    (tmp_path / "replies" / "openai_m" / "0001.jsonl").touch()
    require_server("openai/m", address, str(tmp_path))
    # Without an address it is that of the environment, by LiteLLM's variables, or the provider's usual one.
    monkeypatch.setitem(OPENAI_COMPATIBLE, "hosted_vllm", address)
    monkeypatch.delenv("HOSTED_VLLM_API_BASE", raising=False)
    monkeypatch.setenv("OPENAI_API_BASE", address)
    monkeypatch.setenv("OLLAMA_API_BASE", address)
    for spec, field in (
        ("openai/o", "OPENAI_API_BASE"),
        ("ollama_chat/m", "OLLAMA_API_BASE"),
        ("hosted_vllm/m", "--api-base"),
    ):
        with pytest.raises(InputError, match=f"field '{field}': {silent}"):
            require_server(spec, None, str(tmp_path))
    monkeypatch.delenv("OLLAMA_API_BASE")
    assert default_address("ollama_chat/m") == "http://localhost:11434"
    require_server("anthropic/m", None, str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_server("openai/o", f"http://127.0.0.1:{server.getsockname()[1]}", str(tmp_path))


@pytest.mark.integration
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-"])
def test_a_stream_that_was_closed_before_is_no_failure(closed: str, tmp_path: Path) -> None:
    (tmp_path / "rated.csv").write_text("text,tone\na,1\nb,2\nc,5\n", encoding="utf-8")
    start = f"{sys.executable} -c 'from debate_judge.optimize.cli import main; raise SystemExit(main())'"
    done = subprocess.run(f"{start} check rated.csv {closed}", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("tone" in done.stdout) == (closed == "2>&-")
