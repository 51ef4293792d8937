"""Every engine that can be a bound has a hint, and the page has a row for each."""

from pathlib import Path

from nkisim.enums import engine
from nkisim.timing.report.hints import HINTS, PAGE, hint

ROOT = Path(__file__).parents[4]
NOT_BUSY = {"sync", "unknown"}


def test_every_bound_has_a_hint():
    engines = {one.name for one in engine} - NOT_BUSY
    assert engines | {"dma issue", "latency"} == set(HINTS)
    assert hint("nothing") == ""


def test_the_page_has_them_all():
    rows = (ROOT / PAGE).read_text().split("## What usually helps")[1]
    assert [bound for bound in HINTS if f"| `{bound}` |" not in rows] == []
