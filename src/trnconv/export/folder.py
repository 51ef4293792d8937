"""The folder: sources, recipes, packing, tests, and what Hugging Face's `kernels` reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from trnconv.errors import TrnconvError
from trnconv.export.entries import ExportedEntry, classes_of
from trnconv.export.kernel_sources import kernel_package

_TEMPLATE = ("__init__", "conv", "images", "layers")
_BUILD = """[general]
name = "{name}"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["neuron"]

[general.hub]
repo-id = "{repo}"

[general.neuron]
python-depends = ["nki"]

[torch-noarch]
"""
_CARD = """# {name}

Convolutions for AWS Trainium ({machine}, {cores} cores a launch), exported by trnconv {version} for
{count} problems: {what}. Plain NKI and torch; neither trnconv nor NumPy is needed.

Nothing here has run on a device: kernels were checked in a simulator.

```python
from {name} import conv3d, problems

y = conv3d(x, weight, bias, padding=(0, 1, 1))  # of a problem that `problems()` lists, else refused
```

On a CPU kernels run in `nki.simulate`. Tests: `python -m pytest tests`, with `EXPORT_EVERY=1` for
all problems.
"""


def write_folder(
    folder: Path, name: str, entries: Sequence[ExportedEntry], what: str, version: str
) -> list[Path]:
    """Write all of it below a folder that does not exist yet, or is empty; the files, in order."""
    if not name.isidentifier():
        raise TrnconvError(f"--name {name}: a name of a Python package is needed.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TrnconvError(f"{folder} is there and not empty: name another folder.")
    package = f"torch-ext/{name}"
    texts = {f"{package}/{stem}.py": _template(f"{stem}.py") for stem in _TEMPLATE}
    for module in {entry.kernel_module for entry in entries}:
        kernel_files = kernel_package(module)
        texts |= {f"{package}/kernels/{path}": text for path, text in kernel_files.items()}
    for number, entry in enumerate(entries):
        text = json.dumps(entry.document, separators=(",", ":"))
        texts[f"{package}/recipes/{number:03}.json"] = text + "\n"
    texts[f"{package}/recipes/index.json"] = _index(entries)
    first = entries[0].document
    card = {"machine": first["machine"], "cores": first["cores"], "count": len(entries)}
    texts["README.md"] = _CARD.format(name=name, what=what, version=version, **card)
    texts["build.toml"] = _BUILD.format(name=name, repo=f"your-name/{name}")
    texts["tests/test_conv.py"] = _template("test_conv.py.txt").replace("PACKAGE_NAME", name)
    return [_written(folder / path, text) for path, text in sorted(texts.items())]


def _index(entries: Sequence[ExportedEntry]) -> str:
    """The modules of kernels and of classes, and the problems, so that recipes load when asked."""
    classes = {kind for entry in entries for kind in classes_of(entry.prepared.recipe)}
    document = {
        "classes": {kind.__name__: _inside(kind.__module__) for kind in sorted(classes, key=str)},
        "entries": [
            {
                "file": f"{number:03}.json",
                "module": _inside(entry.kernel_module),
                "names": entry.document["names"],
                "macs": entry.document["macs"],
                "problem": entry.document["problem"],
            }
            for number, entry in enumerate(entries)
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _inside(module: str) -> str:
    return f"kernels.{module.partition('.')[2]}"


def _template(name: str) -> str:
    source = resources.files("trnconv.export") / "template" / name
    return source.read_text(encoding="utf-8")


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
