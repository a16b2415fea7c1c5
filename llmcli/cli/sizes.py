"""Numbers as people read them."""

from __future__ import annotations


def in_bytes(count: float) -> str:
    """Bytes with a decimal unit: 12 B, 1.3 kB, 14.0 GB."""
    if count < 1000:
        return f"{count:.0f} B"
    size = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1000
        if size < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} PB"


def in_flops(count: float) -> str:
    """Operations with a unit: 12 kFLOP, 1.3 MFLOP, 14.0 GFLOP."""
    size = float(count)
    for unit in ("kFLOP", "MFLOP", "GFLOP"):
        size /= 1000
        if size < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TFLOP"


def share(part: int, whole: int) -> str:
    """A percentage with one decimal."""
    return f"{100 * part / whole:.1f}%" if whole else "-"
