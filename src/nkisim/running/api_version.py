"""Which version of NKI's API kernels meet; nkisim.install(version=...) chooses."""

from __future__ import annotations

from typing import Final, Literal, get_args

from nkisim.errors import refuse

NkiVersion = Literal["0.6", "0.7"]
VERSIONS: Final[tuple[NkiVersion, ...]] = get_args(NkiVersion)
DEFAULT: Final[NkiVersion] = "0.7"

_selected: list[NkiVersion] = [DEFAULT]


def selected_version() -> NkiVersion:
    """The version that kernels meet now."""
    return _selected[0]


def select_version(version: str) -> None:
    """Make `version` the one that kernels meet from now on."""
    _selected[0] = require_version("nkisim.install", version)


def require_version(who: str, version: str) -> NkiVersion:
    """The version, or a refusal of one that nkisim does not have."""
    if version not in VERSIONS:
        known = ", ".join(VERSIONS)
        refuse(who, f"NKI version {version!r}", f"nkisim has {known}", f"choose {known}")
    return version
