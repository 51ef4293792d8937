"""Which `nki` this process has: the real toolchain's, or nkisim under its name."""

from __future__ import annotations

import logging
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from nkisim import nki
from nkisim.nki.versions import modules_of, nki_0_6
from nkisim.running.api_version import DEFAULT, select_version, selected_version
from nkisim.version import __version__

_log = logging.getLogger("nkisim")


_replaced: dict[str, ModuleType] = {}  # what stood in sys.modules under NKI's names before


def install(*, version: str | None = None, replace_real: bool = False) -> str:
    """Make `import nki` find nkisim where the real toolchain is absent; say which is in use.

    `version` is the NKI that kernels meet: "0.7", which traces them, or "0.6" with its parser.
    None keeps what an earlier call chose, else takes 0.7. A real toolchain stays in place unless
    `replace_real`. A package called nki without nki.language, such as the empty one in public
    registries, is no toolchain. Calling it again changes nothing but the version.
    """
    if version is not None:
        select_version(version)
    if not _is_installed() and (replace_real or _real_nki() is None):
        _replaced.clear()
        _replaced.update(_take_out())
        sys.modules.update(modules_of(selected_version()))
    elif _is_installed():
        _take_out()
        sys.modules.update(modules_of(selected_version()))
    in_use = which()
    level = logging.WARNING if _is_installed() and _real_nki() else logging.INFO
    _log.log(level, "import nki: %s", in_use)
    return in_use


def uninstall() -> None:
    """Give sys.modules back what it had under NKI's names before `install`; choose 0.7 again."""
    select_version(DEFAULT)
    if _is_installed():
        _take_out()
        sys.modules.update(_replaced)
        _replaced.clear()


def which() -> str:
    """What `import nki` gives: "nkisim 0.1.0 (NKI 0.7)", "nki 0.6.0 at /path", or neither."""
    real = _real_nki()
    if _is_installed():
        ours = f"nkisim {__version__} (NKI {selected_version()})"
        return ours + (f", in place of {real}" if real else "")
    return real or "no nki: call nkisim.install()"


def _is_installed() -> bool:
    return sys.modules.get("nki") in (nki, nki_0_6)


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
    import importlib.metadata  # noqa: PLC0415 (slow to load; only a real toolchain has a version)

    try:
        return importlib.metadata.version("nki")
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
