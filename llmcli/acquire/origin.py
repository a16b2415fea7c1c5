"""origin.json: where a checkpoint came from, recorded beside it. Must not fetch anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from llmcli.checkpoint.escape import printable

ORIGIN = "origin.json"


@dataclass(frozen=True, slots=True)
class Origin:
    """One checkpoint's source. `id` is a hub id or a package, `revision` a commit or version."""

    kind: str
    id: str
    revision: str
    requested_revision: str = ""
    licence: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)
    converter: str = ""
    date: str = ""

    @property
    def text(self) -> str:
        """One short phrase for a listing."""
        revision = self.revision[:12] if self.kind == "hub" else self.revision
        return printable(f"{self.kind} {self.id}@{revision}")


def write_origin(folder: Path, origin: Origin) -> None:
    """Record `origin` in `folder`, with today's date."""
    record = asdict(origin) | {"date": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    (folder / ORIGIN).write_text(json.dumps(record, indent=2) + "\n", "utf-8")


def read_origin(folder: Path) -> Origin | None:
    """What was recorded in `folder`; None when nothing readable was."""
    try:
        record: Any = json.loads((folder / ORIGIN).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    texts = ("kind", "id", "revision", "requested_revision", "licence", "converter", "date")
    values = {key: str(record.get(key, "")) for key in texts}
    hashes = record.get("sha256")
    return Origin(**values, sha256=hashes if isinstance(hashes, dict) else {})
