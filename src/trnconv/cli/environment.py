"""What there is on this computer: packages, toolchain, devices, caches. Works without torch."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BASE = ("numpy", "ml_dtypes", "typer", "rich")
EXTRAS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "torch": (("torch",), "torch's functions and modules on our kernels"),
    "diffusers": (
        ("diffusers",),
        "patching models; sizes that follow from no stored one",
    ),
    "corpus": (("av", "fsspec", "pyarrow", "ray", "safetensors"), "trnconv encode"),
    "plots": (("matplotlib",), "pictures of benchmarks"),
}
_VARIABLES = (
    "TRNCONV_BACKEND",
    "TRNCONV_CACHE_DIR",
    "TRNCONV_TUNED",
    "TRNCONV_HOST",
    "NEURON_PLATFORM_TARGET_OVERRIDE",
    "NEURON_LOGICAL_NC_CONFIG",
    "NKI_DISABLE_COMPILE_CACHE",
)
_DEVICES = ("/dev", "neuron*")
_BORDER_SUM, _INNER_SUM = 16.0, 36.0  # of 4 channels of ones under 3 x 3 taps: 4 or 9 of them


def surroundings() -> dict[str, Any]:
    """Everything, as a document."""
    return {
        "versions": _versions(),
        "packages": [_package(name) for name in BASE],
        "extras": [_extra(name, *about) for name, about in EXTRAS.items()],
        "nki": _nki(),
        "devices": sorted(str(path) for path in Path(_DEVICES[0]).glob(_DEVICES[1])),
        "backend": _backend(),
        "host": _host(),
        "caches": [_cache("prices"), _cache("plans")],
        "tuned": _tuned(),
        "shipped": _shipped(),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "check": _check(),
    }


def _versions() -> dict[str, str]:
    from nkisim.machine import CONSTANTS_VERSION, MACHINES
    from nkisim.version import __version__

    return {
        "trnconv": __version__,
        "constants": f"{CONSTANTS_VERSION} ({', '.join(MACHINES)})",
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": str(os.cpu_count()),
    }


def _package(name: str) -> dict[str, Any]:
    """A package and its version; None if it is not installed."""
    if find_spec(name) is None:
        return {"name": name, "version": None}
    try:
        return {"name": name, "version": version(name)}
    except PackageNotFoundError:
        return {"name": name, "version": "unknown"}


def _extra(name: str, packages: tuple[str, ...], purpose: str) -> dict[str, Any]:
    installed = [_package(package) for package in packages]
    missing = [package["name"] for package in installed if package["version"] is None]
    return {
        "name": name,
        "for": purpose,
        "packages": installed,
        "missing": missing,
        "install": f"pip install 'trnconv[{name}]'" if missing else "",
    }


def _nki() -> dict[str, Any]:
    from trnconv._nki import SOURCE

    return {"source": SOURCE, "simulated": SOURCE.startswith("nkisim")}


def _backend() -> dict[str, Any]:
    """What a tensor on the CPU gets by default, and why."""
    if find_spec("torch") is None:
        return {"taken": None, "reason": "torch is not installed; NumPy arrays run in nkisim"}
    import torch

    from trnconv.errors import TrnconvError
    from trnconv.pytorch.backends.choice import choose_backend

    try:
        choice = choose_backend(torch.empty(0))
    except TrnconvError as refusal:
        return {"taken": None, "reason": str(refusal)}
    return {"taken": choice.backend.value, "reason": choice.reason}


def _host() -> dict[str, Any]:
    """Which machine this is, what is to be exported, and which workarounds are on."""
    from trnconv.errors import TrnconvError
    from trnconv.host.detect import detect
    from trnconv.host.record import host_file, read_host
    from trnconv.host.workarounds import describe

    answer: dict[str, Any] = {"file": str(host_file()), "exports": [], "machine": None}
    try:
        record = read_host()
        answer["workarounds"] = [describe(name) for name in record.workarounds]
        answer["measured"] = record.measured
        here = detect()
    except TrnconvError as refusal:
        return {"workarounds": [], "measured": "", **answer, "refused": str(refusal)}
    words = f"{here.target} ({here.target_source}), logical cores of {here.lnc} ({here.lnc_source})"
    return {**answer, "machine": words, "exports": list(here.exports()), "refused": ""}


def _cache(name: str) -> dict[str, Any]:
    from trnconv.cache import Cache

    cache = Cache.named(name)
    held = cache.holding()
    return {
        "name": name,
        "folder": str(cache.folder),
        "entries": held.entries,
        "bytes": held.held_bytes,
        "set_aside": held.set_aside,
    }


def _tuned() -> list[dict[str, Any]]:
    from nkisim.machine import MACHINES
    from trnconv.planner.tuned_plans import active

    files = [active(name) for name in MACHINES]
    return [
        {"machine": file.machine, "file": str(file.path), "plans": len(file.entries)}
        for file in files
        if file is not None
    ]


def _shipped() -> list[dict[str, Any]]:
    """Plans that came with the package, and how many of their files today's sources made."""
    from nkisim.machine import MACHINES
    from trnconv.cache import stamp
    from trnconv.planner.shipped_plans import shipped_set

    return [
        {
            "machine": machine,
            "cores": cores,
            "plans": len(shipped.entries),
            "files": len(shipped.files),
            "of_these_sources": sum(dict(file.stamp) == stamp() for file in shipped.files),
        }
        for machine in MACHINES
        for cores in (2, 1)
        if (shipped := shipped_set(machine, cores)).entries
    ]


def _check() -> dict[str, Any]:
    """A convolution of ones, in nkisim, against sums counted by hand."""
    import numpy as np

    from trnconv.runtime.functional import conv2d

    x, w = np.ones((1, 4, 5, 6), np.float32), np.ones((2, 4, 3, 3), np.float32)
    y = conv2d(x, w, padding=1)
    passed = bool(
        (y[0, :, 1:-1, 1:-1] == _INNER_SUM).all() and (y[0, :, 0, 0] == _BORDER_SUM).all()
    )
    return {"what": "a 3 x 3 convolution of ones, simulated", "passed": passed}
