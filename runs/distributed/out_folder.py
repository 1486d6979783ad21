"""The results of a distributed run: a folder of parts, each written whole by one actor, and what they were made from.

    scores.parquet/
        part-00000-00003-000012.parquet   file 0, slice 3 of it, part 12 of that: rows in the order of the input
        _manifest.json                    program, LM, aspects, files of the input; another run must have the same
        _slices/00000-00003.json          written when all parts of the slice stand: it is not read again

A finished part is not scored again, unless the LM had failed to answer an item of it. The folder may be anywhere
that fsspec reaches; readers of such folders (Arrow, Spark, pandas) leave out names that begin with `_`.
"""

from __future__ import annotations

import io
import json
import os
import platform
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from filelock import FileLock, Timeout

from debate_judge.data.errors import InputError
from debate_judge.data.files.hub import first_line
from debate_judge.data.files.writing import opening
from debate_judge.runs.scoring.output import RowTotals

KINDS = (".parquet", ".jsonl")
_ANOTHER = "choose another --out, or delete this folder"
_WHOLE = ("memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hf")
"""Stores in which an object is seen whole or not at all, so that no renaming is needed."""


class OutFolder:
    """The folder of the results; may be sent to other processes.

    Args:
        url: A path or URL whose ending names the kind of the parts.

    Raises:
        InputError: It names none, or no store that can be used.
    """

    def __init__(self, url: str) -> None:
        self.url = url if "://" in url else str(Path(url).absolute())
        self.suffix = Path(url.rstrip("/")).suffix.lower()
        self.token = ""
        """Of this folder and no other, from `require_made_from` on; sent along to other processes."""
        if self.suffix not in KINDS:
            raise InputError(
                "the ending of the folder names the format of its parts",
                file=url,
                field="--out",
                expected="a name ending in " + " or ".join(KINDS),
                found=self.suffix or "no suffix",
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "suffix": self.suffix, "token": self.token}

    @cached_property
    def _store(self) -> tuple[Any, str]:
        import fsspec

        try:
            system, path = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise InputError("no store that can be used", file=self.url, field="--out", found=str(error)) from error
        return system, path.rstrip("/")

    @property
    def local(self) -> Path | None:
        """Its path, where it is on this machine."""
        return Path(self._store[1]) if "file" in self._protocols else None

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Name the folder in what a store raises; libraries of stores have errors of their own for a missing key."""
        try:
            yield
        except (InputError, OSError):
            raise
        except Exception as error:
            raise InputError(
                "the store of the results cannot be used",
                file=self.url,
                field="--out",
                found=f"{type(error).__name__}: {first_line(error)}",
                remedy="check the address and the key for it, and run the command again: it resumes",
            ) from error

    @property
    def _protocols(self) -> tuple[str, ...]:
        named = self._store[0].protocol
        return (named,) if isinstance(named, str) else tuple(named)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other runs on this machine out.

        Raises:
            InputError: One is at work there, or the folder cannot be written.
        """
        if self.local is None:
            yield
            return
        with opening(self.local, "--out"):
            self.local.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.local / "_lock", timeout=0)
            try:
                lock.acquire()
            except Timeout:
                raise InputError(
                    "another run is writing into this folder",
                    file=self.url,
                    field="--out",
                    remedy="wait until it ends, or choose another folder",
                ) from None
        try:
            yield
        finally:
            lock.release()

    def require_made_from(self, made_from: Mapping[str, Any]) -> None:
        """Write down what the parts are made from, or see that it is what an earlier run wrote.

        Raises:
            InputError: The folder was begun with something else.
        """
        before = self._read_json("_manifest.json")
        if before is None:
            if self.part_names():
                raise InputError(
                    "the folder has parts already, and nothing says what they were made from",
                    file=self.url,
                    expected="_manifest.json in it, which every run writes",
                    remedy=_ANOTHER,
                )
            self.token = uuid.uuid4().hex
            content = {"token": self.token, **made_from}
            self._write("_manifest.json", json.dumps(content, ensure_ascii=False, indent=1).encode())
            return
        self.token = before.get("token", "")
        for name, value in made_from.items():
            # As it comes back from JSON.
            wanted, known = json.loads(json.dumps(value)), before.get(name)
            if known != wanted:
                shown = known, wanted
                if isinstance(wanted, list) and isinstance(known, list):
                    shown = next((pair for pair in zip(known, wanted, strict=False) if pair[0] != pair[1]), shown)
                raise InputError(
                    f"the folder was begun with another {name}",
                    file=self.url,
                    field=name,
                    expected=str(shown[0]),
                    found=str(shown[1]),
                    remedy=_ANOTHER + "; answers are kept in --store",
                )

    def require_shared(self) -> None:
        """See that this process writes where the driver reads: a path may be another folder on another machine.

        Raises:
            InputError: It does not.
        """
        if (self._read_json("_manifest.json") or {}).get("token", "") != self.token:
            raise InputError(
                "this machine does not see the folder of the results",
                file=self.url,
                field="--out",
                expected="the _manifest.json that this run has written",
                found=f"none, or another one, on {platform.node()}",
                remedy="name a folder that all machines of the cluster share, or an object store (s3://, gs://)",
            )

    def part_names(self) -> set[str]:
        """Names of the parts that stand."""
        return {name[5:] for name in self._names("", "part-", self.suffix)}

    def finished(self) -> dict[str, RowTotals]:
        """Slice -> its rows, for those of which all parts stand."""
        found, there = {}, self.part_names()
        for name in self._names("_slices", "", ".json"):
            record = self._read_json(f"_slices/{name}.json")
            if record is not None and all(f"{name}-{number:06d}" in there for number in range(record["parts"])):
                found[name] = RowTotals(record["rows"], record["rows"], Counter(record["unscored"]), record["examples"])
        return found

    def finish_slice(self, name: str, parts: int, rows: RowTotals) -> None:
        """Note that all parts of a slice stand."""
        record = {"parts": parts, "rows": rows.rows, "unscored": rows.unscored, "examples": rows.examples}
        self._write(f"_slices/{name}.json", json.dumps(record, ensure_ascii=False).encode())

    def write_part(self, name: str, content: bytes) -> None:
        """Write a part, which appears whole or not at all."""
        self._write(f"part-{name}{self.suffix}", content)

    def read_part(self, name: str) -> RowTotals | None:
        """Count the rows of a finished part; None where it cannot be read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            content = cast(bytes, self._store[0].cat_file(f"{self._store[1]}/part-{name}{self.suffix}"))
            if self.suffix == ".parquet":
                known = pq.read_table(io.BytesIO(content), columns=["unscored"])["unscored"].to_pylist()
            else:
                known = [json.loads(line)["unscored"] for line in content.splitlines()]
        except (OSError, ValueError, LookupError, TypeError, pa.ArrowException):
            return None
        return RowTotals(len(known), len(known), Counter(reason for reason in known if reason is not None))

    def write_state(self, name: str, content: Mapping[str, Any]) -> None:
        """Keep something of the running run, under a name that no reader takes for a part."""
        self._write(f"_{name}.json", json.dumps(content).encode())

    def read_state(self, name: str) -> dict[str, Any] | None:
        return self._read_json(f"_{name}.json")

    def drop_state(self, name: str) -> None:
        system, path = self._store
        if system.exists(f"{path}/_{name}.json"):
            system.rm_file(f"{path}/_{name}.json")

    def _names(self, below: str, start: str, end: str) -> list[str]:
        system, path = self._store
        place = f"{path}/{below}".rstrip("/")
        with self._asking():
            # Listings of object stores are kept by the library, and others may have written since.
            system.invalidate_cache(place)
            found = system.ls(place, detail=False) if system.exists(place) else []
        names = [str(one).rpartition("/")[2] for one in found]
        return sorted(n.removesuffix(end) for n in names if n.startswith(start) and n.endswith(end))

    def _read_json(self, name: str) -> dict[str, Any] | None:
        system, path = self._store
        try:
            with self._asking():
                content = system.cat_file(f"{path}/{name}")
            return cast(dict[str, Any], json.loads(content))
        except FileNotFoundError:
            return None
        except json.JSONDecodeError:
            raise InputError("not valid JSON", file=f"{self.url}/{name}", remedy=_ANOTHER) from None

    def _write(self, name: str, content: bytes) -> None:
        with self._asking():
            self._put(name, content)

    def _put(self, name: str, content: bytes) -> None:
        system, path = self._store
        target = f"{path}/{name}"
        system.makedirs(target.rpartition("/")[0], exist_ok=True)
        if set(self._protocols) & set(_WHOLE):
            system.pipe_file(target, content)
            return
        folder, _, last = target.rpartition("/")
        temporary = f"{folder}/_{last}.{uuid.uuid4().hex[:8]}"
        if self.local is None:
            system.pipe_file(temporary, content)
            system.mv(temporary, target)
            return
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            # Otherwise a machine that fails may leave the name without the content.
            os.fsync(file.fileno())
        os.replace(temporary, target)
