"""Device rules about a launch as a whole: its grid, its programs, its scratch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.device_rules.loop_rules import GRID_ABOVE_LNC, GRID_BELOW_LNC, PROGRAMS_DIFFER
from nkisim.running.programs import difference

if TYPE_CHECKING:
    from nkisim.device_rules.rule_monitor import TouchedRule
    from nkisim.running.session import Session, Settings
    from nkisim.tensors.tensor import NkiTensor


def launch_rules(
    sessions: list[Session], settings: Settings, returned: list[NkiTensor]
) -> tuple[TouchedRule, ...]:
    """What device rules say about a launch as a whole; all that the run has broken."""
    monitor, programs = sessions[0].monitor, len(sessions)
    grid = f"{programs} programs on logical cores of {settings.lnc}"
    if programs > settings.lnc:
        monitor.broken(GRID_ABOVE_LNC, grid)
    elif programs < settings.lnc:
        monitor.broken(GRID_BELOW_LNC, grid)
    unlike = difference(sessions[0].regions, sessions[-1].regions)
    if unlike is not None:
        monitor.broken(PROGRAMS_DIFFER, unlike)
    for session in sessions:
        session.require_scratch_elsewhere(returned)
    touched = {name: rule for session in sessions for name, rule in session.monitor.touched.items()}
    return tuple(touched.values())
