"""The modules that `import nki` finds, for each version of NKI."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from nkisim import collectives, enums, isa, language, nki, typing
from nkisim.nki import framework, simulator
from nkisim.nki.framework import kernel as framework_kernel
from nkisim.running.api_version import NkiVersion

NEW_IN_0_7: Final[dict[str, frozenset[str]]] = {
    "nki.language": frozenset({"int64"}),
    "nki.isa": frozenset({"NkiScalar", "scalar_load", "scalar_store"}),
    "nki.collectives": frozenset({"reduce_scatter_v"}),
}
"""Names that NKI 0.6 does not have."""


def _without(module: ModuleType, names: frozenset[str]) -> ModuleType:
    """A module of the same name and members, but for some."""
    older = ModuleType(module.__name__, module.__doc__)
    kept = {name: value for name, value in vars(module).items() if name not in names}
    vars(older).update(kept, __all__=[name for name in module.__all__ if name not in names])
    return older


_SHARED: Final[dict[str, ModuleType]] = {
    "nki.isa.constants": enums,  # where kernels of nki-library take the enums from
    "nki.typing": typing,
    "nki.simulator": simulator,
    "nki.framework": framework,
    "nki.framework.kernel": framework_kernel,
}
_NEWEST: Final[dict[str, ModuleType]] = {
    "nki": nki,
    "nki.language": language,
    "nki.isa": isa,
    "nki.collectives": collectives,
}
nki_0_6: Final = _without(nki, frozenset())
_OLDER: Final[dict[str, ModuleType]] = {
    "nki": nki_0_6,
    **{name: _without(_NEWEST[name], names) for name, names in NEW_IN_0_7.items()},
}
for _name in NEW_IN_0_7:
    setattr(nki_0_6, _name.removeprefix("nki."), _OLDER[_name])


def modules_of(version: NkiVersion) -> dict[str, ModuleType]:
    """NKI's modules by name, as `version` has them."""
    return _SHARED | (_OLDER if version == "0.6" else _NEWEST)
