"""Scoring from S3 to S3 by a server on this machine, with actors in this process."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest

from debate_judge.runs.flags.parser import EXIT_INPUT, EXIT_LM
from tests.runs.distributed_command import Command, in_this_process
from tests.runs.distributed_run import write_csv, write_jsonl, write_parquet

moto_server = pytest.importorskip("moto.server", reason="moto, a stand-in for S3, is not installed")
s3fs = pytest.importorskip("s3fs", reason="s3fs, which reaches S3, is not installed")

pytestmark = pytest.mark.integration


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A bucket with the texts of 20 groups in three formats."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in {"ENDPOINT_URL": address, "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    s3fs.S3FileSystem.clear_instance_cache()
    # What it holds is kept by its module, from test to test.
    urllib.request.urlopen(urllib.request.Request(f"{address}/moto-api/reset", method="POST")).close()
    system = fsspec.filesystem("s3")
    system.mkdir("texts")
    write_jsonl(tmp_path / "in-0.jsonl", range(10))
    write_csv(tmp_path / "in-1.csv", range(10, 15))
    write_parquet(tmp_path / "in-2.parquet", range(15, 20))
    system.put(f"{tmp_path}/in-*", "texts/")
    yield system
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    with in_this_process(tmp_path, monkeypatch) as command:
        yield command


def test_a_run_from_s3_to_s3_goes_on_after_a_stop(
    bucket: Any, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    places: dict[str, str | Path] = {"in": "s3://texts/in-*", "out": "s3://texts/scores.parquet"}
    assert command(budget="calls=60", **places) == EXIT_LM
    stopped = len(bucket.glob("texts/scores.parquet/part-*"))
    assert command(**places) == 0
    parts = bucket.glob("texts/scores.parquet/part-*")
    assert stopped < len(parts)
    rows = pq.read_table("texts/scores.parquet", filesystem=bucket).to_pylist()
    assert [row["group"] for row in rows] == [f"g{n}" for n in range(20) for _ in range(4)]
    assert all(row["score"] is not None for row in rows)
    assert max(command.server.asked.values()) == 1
    # The same texts on this machine have the same rows.
    assert command() == 0
    assert [json.loads(row) for row in command.rows()] == rows
    # A part that is lost is made again; an input that has changed is refused.
    bucket.rm_file(parts[1])
    assert command(**places) == 0
    assert bucket.exists(parts[1])
    content = bucket.cat_file("texts/in-1.csv")
    bucket.pipe_file("texts/in-1.csv", content.replace(b"message 12", b"message 99"))
    assert command(**places) == EXIT_INPUT
    assert "different inputs" in capsys.readouterr().err
