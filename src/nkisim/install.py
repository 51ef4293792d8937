"""Which `nki` this process has: the real toolchain's, or nkisim under its name."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

from nkisim import collectives, enums, isa, language, nki, typing
from nkisim.nki import simulator
from nkisim.version import __version__

_log = logging.getLogger("nkisim")

_MODULES: Final[dict[str, ModuleType]] = {
    "nki": nki,
    "nki.language": language,
    "nki.isa": isa,
    "nki.isa.constants": enums,  # where kernels of nki-library take the enums from
    "nki.collectives": collectives,
    "nki.typing": typing,
    "nki.simulator": simulator,
}

_replaced: dict[str, ModuleType] = {}  # what stood in sys.modules under NKI's names before


def install(*, replace_real: bool = False) -> str:
    """Make `import nki` find nkisim where the real toolchain is absent; say which is in use.

    A real toolchain stays in place unless `replace_real`. A package called nki without
    nki.language, such as the empty one in public registries, is no toolchain. Calling it again
    changes nothing.
    """
    if not _is_installed() and (replace_real or _real_nki() is None):
        _replaced.clear()
        _replaced.update(_take_out())
        sys.modules.update(_MODULES)
    in_use = which()
    level = logging.WARNING if _is_installed() and _real_nki() else logging.INFO
    _log.log(level, "import nki: %s", in_use)
    return in_use


def uninstall() -> None:
    """Give sys.modules back what it had under NKI's names before `install`."""
    if _is_installed():
        _take_out()
        sys.modules.update(_replaced)
        _replaced.clear()


def which() -> str:
    """What `import nki` gives: "nkisim 0.1.0", "nki 0.6.0 at /path", or that there is none."""
    real = _real_nki()
    if _is_installed():
        return f"nkisim {__version__}" + (f", in place of {real}" if real else "")
    return real or "no nki: call nkisim.install()"


def _is_installed() -> bool:
    return sys.modules.get("nki") is nki


def _take_out() -> dict[str, ModuleType]:
    """Remove every module of the name nki from sys.modules."""
    names = [name for name in sys.modules if name == "nki" or name.startswith("nki.")]
    return {name: sys.modules.pop(name) for name in names}


def _real_nki() -> str | None:
    """Version and place of the real toolchain, found without importing it."""
    place = _imported_nki() or _found_nki()
    return f"nki {_version()} at {place}" if place else None


def _imported_nki() -> str | None:
    modules = _replaced if _is_installed() else sys.modules
    if "nki" in modules and "nki.language" in modules:
        return getattr(modules["nki"], "__file__", None) or "an unknown place"
    return None


def _found_nki() -> str | None:
    package = _spec("nki", None)
    if package is None or package.submodule_search_locations is None:
        return None
    folders = list(package.submodule_search_locations)
    if _spec("nki.language", folders) is None:
        return None
    return package.origin or folders[0]


def _spec(name: str, path: list[str] | None) -> ModuleSpec | None:
    """importlib's search, but past sys.modules, where nkisim may already stand."""
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return spec
    return None


def _version() -> str:
    try:
        return importlib.metadata.version("nki")
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
