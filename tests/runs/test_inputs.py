"""What a distributed run knows its input by: content that has changed is noticed, whatever the store says of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from debate_judge.runs.distributed.units import find_inputs, with_fingerprints
from tests.runs.distributed_run import write_jsonl, write_parquet


def fingerprints(pattern: str | Path) -> list[str]:
    return [file.fingerprint for file in with_fingerprints(find_inputs(str(pattern)))]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_an_edit_in_the_middle_of_a_file_is_noticed(tmp_path: Path, scheme: str) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", range(3000))
    before, time = fingerprints(f"{scheme}{path}"), path.stat()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"x")
    os.utime(path, (time.st_atime, time.st_mtime))
    assert path.stat().st_size == time.st_size > 3 * 64 * 1024
    assert fingerprints(f"{scheme}{path}") != before
    assert fingerprints(f"{scheme}{path}") == fingerprints(f"{scheme}{path}")


@pytest.mark.parametrize("versions", [True, False])
def test_a_store_says_which_version_a_file_is_or_its_ends_are_hashed(
    monkeypatch: pytest.MonkeyPatch, versions: bool
) -> None:
    info = MemoryFileSystem.info

    def bare(self: MemoryFileSystem, path: str, **more: Any) -> dict[str, Any]:
        return {name: value for name, value in info(self, path, **more).items() if name in ("name", "size", "type")}

    if not versions:
        monkeypatch.setattr(MemoryFileSystem, "info", bare)
    system, changed = fsspec.filesystem("memory"), 250_000 if versions else 499_999
    system.pipe_file("/texts/in.jsonl", b"a" * 500_000)
    before = fingerprints("memory://texts/in.jsonl")
    system.pipe_file("/texts/in.jsonl", b"a" * changed + b"b" * (500_000 - changed))
    assert fingerprints("memory://texts/in.jsonl") != before
    system.store.clear()


def test_a_set_of_the_hub_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()
    folder = tmp_path / "replies"
    folder.mkdir()
    write_parquet(folder / "train.parquet", range(4))
    before = fingerprints(f"hf:{folder}@train")
    assert before == fingerprints(f"hf:{folder}@train") != [""]
    write_parquet(folder / "train.parquet", range(5))
    assert fingerprints(f"hf:{folder}@train") != before
