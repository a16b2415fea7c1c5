"""A receipt as a file. One that is read is somebody else's word: it is validated whole before
anything is done. Must not know terminals.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from llmcli.checkpoint.escape import printable
from llmcli.engine.plain import PlainError, from_plain, to_plain
from llmcli.engine.receipt import Receipt
from llmcli.errors import LlmcliError

FORMAT = 1
MARK = "llmcli_receipt"
# A context of a million tokens needs less than half of this.
MOST_BYTES = 1 << 26
_DEVICE = re.compile(r"cpu|mps|cuda(:[0-9]{1,3})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def as_text(receipt: Receipt) -> str:
    """One JSON object, a line for each part."""
    parts = {MARK: FORMAT, **to_plain(receipt)}.items()
    lines = (f'"{name}": {json.dumps(value, allow_nan=False)}' for name, value in parts)
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_receipt(path: Path) -> Receipt:
    """Raises LlmcliError naming what is wrong with the file."""
    shown = printable(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise LlmcliError(
            f"{shown} cannot be read: {error.strerror or error}",
            hint="give a file that `llmcli generate --receipt FILE` wrote",
        ) from error
    try:
        if len(data) > MOST_BYTES:
            raise PlainError(f"it has more than {MOST_BYTES:,} bytes")
        return _checked(_parsed(data))
    except PlainError as error:
        raise LlmcliError(
            f"{shown} is no receipt that can be replayed: {error}",
            hint="give a file that `llmcli generate --receipt FILE` wrote, unchanged",
        ) from error


def _parsed(data: bytes) -> Receipt:
    def refuse(constant: str) -> None:
        raise PlainError(f"it holds {constant}, which is no JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise PlainError("it gives a key twice")
        return dict(pairs)

    try:
        whole = json.loads(data.decode("utf-8"), parse_constant=refuse, object_pairs_hook=once)
    except PlainError:
        raise
    except (ValueError, RecursionError) as error:
        raise PlainError(f"it is no JSON ({printable(str(error), 80)})") from error
    if not isinstance(whole, dict) or MARK not in whole:
        raise PlainError(f"it holds no {MARK}")
    if (number := whole.pop(MARK)) != FORMAT or isinstance(number, bool):
        raise PlainError(f"its {MARK} is {printable(repr(number), 40)}; this llmcli reads {FORMAT}")
    if isinstance(machine := whole.get("machine"), dict):
        # Receipts of versions that quantised nothing do not say so.
        machine.setdefault("quantize", None)
    return from_plain(Receipt, whole)


def _checked(receipt: Receipt) -> Receipt:
    """What types alone do not tell."""
    machine, result = receipt.machine, receipt.result
    if not _DEVICE.fullmatch(machine.device):
        raise PlainError(f"machine.device is {printable(repr(machine.device), 40)}")
    if not 1 <= machine.threads <= 1024:
        raise PlainError(f"machine.threads is {machine.threads}; it must lie between 1 and 1024")
    if not receipt.prompt.ids:
        raise PlainError("prompt.ids is empty")
    if len(result.ids) != len(result.logprobs):
        raise PlainError(
            f"result.ids has {len(result.ids)} entries, result.logprobs {len(result.logprobs)}"
        )
    for place, ids in (
        ("prompt.ids", receipt.prompt.ids),
        ("negative_ids", receipt.negative_ids or ()),
        ("ending.stop_ids", receipt.ending.stop_ids),
        ("result.ids", result.ids),
    ):
        if low := [id_ for id_ in ids if id_ < 0]:
            raise PlainError(f"{place} holds {low[0]}; an id is at least 0")
    for part, model in (("model", receipt.model), ("draft", receipt.draft)):
        for name, file in model.files.items() if model else ():
            if not _SHA256.fullmatch(file.sha256):
                raise PlainError(f"{part}.files.{printable(name, 40)}.sha256 is no SHA-256")
    flags = receipt.flags
    for part, there, asked in (
        ("draft", receipt.draft is not None, flags.draft_model is not None),
        ("negative_ids", receipt.negative_ids is not None, flags.negative_prompt is not None),
    ):
        if there != asked:
            raise PlainError(f"{part} and flags contradict each other: only one of them is null")
    if "" in receipt.ending.stop_strings:
        raise PlainError("ending.stop_strings holds an empty text")
    return receipt
