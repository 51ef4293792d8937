"""Kernels in the user's own files: importing one while `nki` is nkisim, choosing a kernel."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from nkisim.commands.not_run import not_run
from nkisim.install import install
from nkisim.public_calls import meant
from nkisim.running.api_version import NkiVersion
from nkisim.running.kernel import Kernel


def split_target(words: str) -> tuple[Path, str | None]:
    """FILE or FILE:kernel, as a file and a name."""
    if not Path(words).exists() and ":" in words:
        file, _, name = words.rpartition(":")
        return Path(file), name
    return Path(words), None


def load_kernel(words: str, version: NkiVersion | None = None) -> tuple[str, Callable[..., Any]]:
    """The kernel that FILE[:kernel] names, and what to call it."""
    path, name = split_target(words)
    if not path.is_file():
        not_run(f"{path} is not a file", "FILE or FILE:kernel, a Python file", "check the path")
    module = _imported(path, version)
    kernels = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, Kernel) and value.__module__ == module.__name__
    }
    if name is None:
        name = _only_name(path, kernels)
    found = kernels.get(name) or getattr(module, name, None)
    if not isinstance(found, (Kernel, FunctionType)):
        known = sorted(kernels)
        listed = f"its kernels are {', '.join(known)}" if known else "it has no kernel"
        not_run(f"{path} has no kernel {name!r}", listed, meant(name, known) or "name one")
    return name, found


def _only_name(path: Path, kernels: dict[str, Kernel]) -> str:
    if not kernels:
        not_run(
            f"no kernels here: {path}",
            "a kernel is a function under nki.jit",
            f"decorate it, or name a plain function: {path}:function",
        )
    if len(kernels) > 1:
        not_run(
            f"{path} has {len(kernels)} kernels: {', '.join(sorted(kernels))}",
            "one kernel at a time",
            f"name it: {path}:{min(kernels)}",
        )
    return next(iter(kernels))


def _imported(path: Path, version: NkiVersion | None) -> ModuleType:
    """The module of a file; a file of a package is imported as a part of it."""
    install(version=version, replace_real=True)  # who says `python -m nkisim` means nkisim
    path = path.resolve()
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    if len(names) > 1:
        return importlib.import_module(".".join(names))
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_the_user"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        not_run(f"{path} cannot be imported", "a Python file, *.py", "rename it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look it up there
    spec.loader.exec_module(module)
    return module
