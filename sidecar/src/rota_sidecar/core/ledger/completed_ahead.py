"""
Offsets completed ahead of the committed offset, as text in the commit's metadata.

With parallel processing, records may be done before earlier ones. After a clean stop the next owner must not dispatch them
again, and only the commit can tell it.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

from rota_sidecar.core.ledger.runs import Run, Runs

# Three bytes are four characters of base64, so that no padding is needed.
_GROUP_BITS = 24
_GROUPS_MAX = 1_000
# Limit of the span in offsets; later offsets are left out. Coordinators accept 4,096 characters.
SPAN_MAX = _GROUP_BITS * _GROUPS_MAX

# The first offset, and a bit for it and for each later one.
PATTERN = rf"[0-9]{{1,19}}:(?:[A-Za-z0-9_-]{{4}}){{1,{_GROUPS_MAX}}}"


def write(runs: Sequence[Run]) -> str:
    """Encode runs of offsets, in ascending order; empty for no runs."""
    if not runs:
        return ""
    base, bits = runs[0].first, 0
    for run in runs:
        first, end = run.first - base, min(run.end - base, SPAN_MAX)
        if first >= SPAN_MAX:
            break
        bits |= ((1 << (end - first)) - 1) << first
    groups = -(-bits.bit_length() // _GROUP_BITS)
    encoded = urlsafe_b64encode(bits.to_bytes(groups * _GROUP_BITS // 8, "little"))
    return f"{base}:{encoded.decode()}"


def read(text: str) -> Runs:
    """Decode the text that `write` made."""
    runs = Runs()
    if text:
        base, _, encoded = text.partition(":")
        bits = int.from_bytes(urlsafe_b64decode(encoded), "little")
        for found in re.finditer("1+", f"{bits:b}"[::-1]):
            runs.add(int(base) + found.start(), int(base) + found.end())
    return runs
