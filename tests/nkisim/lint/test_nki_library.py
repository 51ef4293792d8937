"""No false alarm on kernels that ship: aws-neuron/nki-library, from a checkout in NKILIB_SRC."""

import os
import shutil
from pathlib import Path

import pytest

from parser_lint import lint_file

pytestmark = pytest.mark.nkilib

KERNELS = (
    "experimental/conv/conv1d.py",
    "experimental/conv/depthwise_conv1d.py",
    "experimental/loss/cross_entropy.py",
    "core/cumsum/cumsum.py",
    "core/embeddings/rope.py",
    "core/rmsnorm/rmsnorm_quant.py",
)
# `is None`, tensor items and kernels in kernels: documents and shipped code contradict each other.
CONTRADICTED = {"X05", "S11", "F07"}
DEPRECATED = {"L01", "L02"}


def package():
    """The directory of the library's own package, wherever the checkout keeps it."""
    return next(Path(os.environ["NKILIB_SRC"]).rglob(KERNELS[0])).parents[2]


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_shipped_kernel_has_no_errors(kernel):
    report = lint_file(package() / kernel)
    assert report.ok, str(report)
    assert {each.rule for each in report.warnings} <= CONTRADICTED | DEPRECATED


def test_what_a_shipped_kernel_reaches_is_read():
    report = lint_file(package() / KERNELS[0])
    assert len({each.file for each in report.findings}) > 1


def test_a_violation_deep_in_the_library_is_found(tmp_path):
    copy = tmp_path / "nkilib"
    shutil.copytree(package(), copy)
    deep = copy / "core/utils/kernel_assert.py"
    seeded = deep.read_text().replace(
        "    assert condition", "    x = {1}\n    assert condition", 1
    )
    deep.write_text(seeded)
    report = lint_file(copy / KERNELS[0])
    assert [(each.rule, Path(each.file).name) for each in report.errors] == [
        ("X10", "kernel_assert.py")
    ]
