"""What kernels of nki-library rely on although the documents do not spell it out."""

from dataclasses import dataclass

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import MemoryLimitError, NkiValidationError
from nkisim.nki import dtype
from nkisim.numerics.dtypes import DType
from nkisim.running.kernel import run


@dataclass
class Section(nl.NKIObject):
    rows: int
    first = None
    last = 7
    step: int = 1
    names = []  # noqa: RUF012 (a dataclass refuses it as a default, so it stays a class attribute)

    def count(self):
        return self.last - self.first


def test_an_assignment_without_annotation_is_a_field_of_a_dataclass():
    section = Section(4, 2, first=1)
    assert (section.rows, section.step, section.first, section.last) == (4, 2, 1, 7)
    assert section.count() == 6
    assert section != Section(4, 2, first=2)
    assert "first=1" in repr(section)


def test_methods_and_lists_of_a_class_are_no_fields():
    with pytest.raises(TypeError, match="names"):
        Section(4, names=[])
    with pytest.raises(TypeError, match="count"):
        Section(4, count=1)


def test_a_class_that_is_no_dataclass_takes_keywords():
    class Plain(nl.NKIObject):
        size = None

    assert Plain().size is None
    assert Plain(size=3).size == 3


def test_parameters_are_annotated_with_nki_dtype():
    assert dtype is DType


@pytest.mark.parametrize(
    ("dtype_name", "byte", "limit"),
    [("bfloat16", 6414, None), ("uint8", 3, None), ("bfloat16", 1, 2), ("float32", 6, 4)],
)
def test_an_sbuf_address_is_a_multiple_of_the_element_size(dtype_name, byte, limit):
    def kernel():
        nl.ndarray((128, 8), dtype_name, buffer=nl.sbuf, address=(0, byte))

    if limit is None:
        run(kernel, machine="trn2")
        return
    with pytest.raises(MemoryLimitError, match=f"byte a multiple of {limit} B"):
        run(kernel, machine="trn2")


def scatter(rows, values, index_dims):
    """Rows of `values` to the places that a column of `rows` names, as a view of given rank."""
    out = nl.ndarray((8, 4), values.dtype, buffer=nl.shared_hbm)
    index = nl.ndarray(rows.shape, rows.dtype)
    tile = nl.ndarray(values.shape, values.dtype)
    nisa.dma_copy(index, rows)
    nisa.dma_copy(tile, values)
    pattern = [[rows.shape[1], rows.shape[0]], *[[1, 1]] * (index_dims - 1)]
    column = index.ap(pattern, offset=1)
    nisa.dma_copy(out.ap([[4, values.shape[0]], [1, 4]], vector_offset=column), tile)
    return out


@pytest.mark.parametrize("index_dims", [2, 3])
def test_row_numbers_may_have_more_dimensions_of_one_element(index_dims):
    rows = np.array([[0, 5], [1, 0], [2, 7]], np.int32)
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    out = run(scatter, rows, values, index_dims, machine="trn2").outputs
    np.testing.assert_array_equal(out[[5, 0, 7]], values)


def test_row_numbers_need_a_dimension_for_the_column():
    rows, values = np.zeros((3, 2), np.int32), np.zeros((3, 4), np.float32)
    with pytest.raises(NkiValidationError, match="row numbers"):
        run(scatter, rows, values, 1, machine="trn2")
