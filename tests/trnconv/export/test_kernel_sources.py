"""Sources of a kernel, made a package of their own."""

import ast

import pytest

from trnconv.errors import UnsupportedError
from trnconv.export.kernel_sources import kernel_package, relative

pytestmark = pytest.mark.integrations


def test_imports_are_relative_and_those_for_types_are_left_out():
    source = (
        "from typing import TYPE_CHECKING\n"
        "from trnconv._nki import nl\n"
        "from trnconv.algorithms.direct.core import (\n    Core,\n)\n"
        "if TYPE_CHECKING:\n    from nkisim.machine import Machine\n"
        "x = 1\n"
    )
    assert relative(source, ["algorithms", "direct", "kernel"]) == (
        "from typing import TYPE_CHECKING\n"
        "from ..._nki import nl\n"
        "from ...algorithms.direct.core import (\n    Core,\n)\n"
        "x = 1\n"
    )


def test_what_needs_nkisim_is_refused():
    with pytest.raises(UnsupportedError, match=r"algorithms\.x imports nkisim\.machine"):
        relative("from nkisim.machine import Machine\n", ["algorithms", "x"])


def test_the_package_imports_only_itself_and_nki():
    texts = kernel_package("trnconv.algorithms.direct.kernel")
    assert "algorithms/direct/__init__.py" in texts
    assert "__init__.py" in texts
    tops = set()
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                tops |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                tops.add(node.module.split(".")[0])
            elif isinstance(node, ast.ImportFrom):
                parts = path.removesuffix(".py").split("/")
                machine = "/".join([*parts[: len(parts) - node.level], *node.module.split(".")])
                assert f"{machine}.py" in texts, f"{path} imports {machine}"
    assert tops <= {"__future__", "dataclasses", "hashlib", "nki", "typing"}
