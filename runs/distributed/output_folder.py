"""The results of a distributed run: a folder of parts, each written atomically by one actor, with a manifest.

    scores.parquet/
        part-00000-00003.parquet   rows of unit 3 of file 0, in the order of the input
        _manifest.json             program, LM, aspects, input files; a run that resumes must have the same
        _units/00000-00003.json    written last: the unit is complete and is not scored again

A unit is not complete if the LM failed to answer an item or a line could not be read; the next run tries it again. The
folder may be anywhere that fsspec reaches; readers of such folders (Arrow, Spark, pandas) skip names that begin with
`_`.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from filelock import FileLock, Timeout

from debate_judge.data.errors import InputError
from debate_judge.runs.distributed.units import storage_errors
from debate_judge.runs.scoring.output import RowTotals

PART_SUFFIXES = (".parquet", ".jsonl")
_REMEDY = "choose another --out, or delete this folder"
_ATOMIC_STORES = ("memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hf")
"""fsspec protocols whose writes are atomic, so that a file need not be renamed into place."""


class OutputFolder:
    """The folder of the results: a path or URL whose suffix names the format of the parts. It can be pickled."""

    def __init__(self, url: str) -> None:
        self.url = url if "://" in url else str(Path(url).absolute())
        self.suffix = Path(url.rstrip("/")).suffix.lower()
        self.token = ""
        """Random id of the folder, set by `require_provenance` and pickled with it."""
        if self.suffix not in PART_SUFFIXES:
            raise InputError(
                "the ending of the folder names the format of its parts",
                file=url,
                field="--out",
                expected="a name ending in " + " or ".join(PART_SUFFIXES),
                found=self.suffix or "no suffix",
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "suffix": self.suffix, "token": self.token}

    @cached_property
    def _location(self) -> tuple[Any, str]:
        import fsspec

        with storage_errors(self.url, "--out"):
            filesystem, path = fsspec.core.url_to_fs(self.url)
        return filesystem, path.rstrip("/")

    @property
    def local(self) -> Path | None:
        """Its path if it is on this machine."""
        return Path(self._location[1]) if "file" in self._protocols else None

    @property
    def _protocols(self) -> tuple[str, ...]:
        protocol = self._location[0].protocol
        return (protocol,) if isinstance(protocol, str) else tuple(protocol)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the folder against other runs on this machine."""
        if self.local is None:
            yield
            return
        with storage_errors(self.url, "--out"):
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

    def require_provenance(self, provenance: Mapping[str, Any]) -> None:
        """Write the manifest, or check that an earlier run's manifest is the same."""
        earlier = self._read_json("_manifest.json")
        if earlier is None:
            if any(name.startswith("part-") for name in self._sizes("")):
                raise InputError(
                    "the folder has parts but no manifest, so it is unknown what they were made from",
                    file=self.url,
                    expected="_manifest.json in it, which every run writes",
                    remedy=_REMEDY,
                )
            self.token = uuid.uuid4().hex
            self._write_json("_manifest.json", {"token": self.token, **provenance})
            return
        self.token = earlier.get("token", "")
        # Absent means not set, on both sides: rows without --wide are no continuation of rows with it.
        for name in dict.fromkeys([*provenance, *(name for name in earlier if name != "token")]):
            # Through JSON, as what was read back.
            expected, recorded = json.loads(json.dumps(provenance.get(name))), earlier.get(name)
            if recorded != expected:
                diff = recorded, expected
                if isinstance(expected, list) and isinstance(recorded, list):
                    diff = next((pair for pair in zip(recorded, expected, strict=False) if pair[0] != pair[1]), diff)
                raise InputError(
                    f"the folder was begun with a different {name}",
                    file=self.url,
                    field=name,
                    expected=str(diff[0]),
                    found=str(diff[1]),
                    remedy=_REMEDY + "; replies are kept in --store",
                )

    def require_same_folder(self) -> None:
        """Check that this process sees the driver's folder: a path may be another folder on another machine."""
        if (self._read_json("_manifest.json") or {}).get("token", "") != self.token:
            raise InputError(
                "this machine cannot see the output folder",
                file=self.url,
                field="--out",
                expected="the _manifest.json that this run has written",
                found=f"none, or another one, on {platform.node()}",
                remedy="name a folder that all machines of the cluster share, or an object store (s3://, gs://)",
            )

    def complete_units(self) -> tuple[dict[str, RowTotals], int]:
        """Unit -> its rows, for complete units; and the number of units whose part was damaged or lost."""
        sizes = self._sizes("")
        names = [name for name in self._sizes("_units") if not name.startswith("_")]
        rows, damaged = dict[str, RowTotals](), 0
        with ThreadPoolExecutor(16) as pool:
            # In parallel: one after the other would take minutes on a remote store.
            records = pool.map(lambda name: self._read_json(f"_units/{name}"), names)
            for name, record in zip(names, records, strict=True):
                unit = name.removesuffix(".json")
                if record is None or (record["rows"] and sizes.get(self._part_name(unit)) != record["bytes"]):
                    damaged += 1
                else:
                    rows[unit] = RowTotals(
                        record["rows"], record["rows"], Counter(record["unscored"]), record["examples"]
                    )
        return rows, damaged

    def write_part(self, unit: str, content: Path) -> None:
        """Write the rows of a unit from a file, atomically."""
        self._write(self._part_name(unit), content)

    def mark_complete(self, unit: str, size: int, rows: RowTotals) -> None:
        """Record that a unit is complete, with these rows in a part of `size` bytes."""
        record = {"bytes": size, "rows": rows.rows, "unscored": rows.unscored, "examples": rows.examples}
        self._write_json(f"_units/{unit}.json", record)

    def _part_name(self, unit: str) -> str:
        return f"part-{unit}{self.suffix}"

    def _sizes(self, subfolder: str) -> dict[str, int]:
        """Name -> bytes, of the files in a subfolder."""
        filesystem, path = self._location
        folder = f"{path}/{subfolder}".rstrip("/")
        with storage_errors(self.url, "--out"):
            # fsspec caches listings of object stores, and others may have written since.
            filesystem.invalidate_cache(folder)
            listed = filesystem.ls(folder, detail=True) if filesystem.exists(folder) else []
        return {str(entry["name"]).rpartition("/")[2]: entry.get("size") or 0 for entry in listed}

    def _read_json(self, name: str) -> dict[str, Any] | None:
        filesystem, path = self._location
        with storage_errors(self.url, "--out"):
            try:
                return cast(dict[str, Any], json.loads(filesystem.cat_file(f"{path}/{name}")))
            except FileNotFoundError:
                return None
            except json.JSONDecodeError:
                raise InputError("not valid JSON", file=f"{self.url}/{name}", remedy=_REMEDY) from None

    def _write_json(self, name: str, record: Mapping[str, Any]) -> None:
        with tempfile.TemporaryDirectory(prefix="debate-") as folder:
            file = Path(folder) / "record.json"
            file.write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")
            self._write(name, file)

    def _write(self, name: str, content: Path) -> None:
        filesystem, path = self._location
        target = f"{path}/{name}"
        folder, _, filename = target.rpartition("/")
        atomic = set(self._protocols) & set(_ATOMIC_STORES)
        temporary = target if atomic else f"{folder}/_{filename}.{uuid.uuid4().hex[:8]}"
        with storage_errors(self.url, "--out"):
            filesystem.makedirs(folder, exist_ok=True)
            filesystem.put_file(str(content), temporary)
            if self.local is not None:
                # Without it a crash of the machine may leave the name without the content.
                with open(temporary, "rb") as file:
                    os.fsync(file.fileno())
                os.replace(temporary, target)
            elif not atomic:
                filesystem.mv(temporary, target)
