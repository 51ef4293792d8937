"""The `nki.language` namespace."""

from nkisim.language.control import *  # noqa
from nkisim.language.creation import *  # noqa
from nkisim.language.tile_size import tile_size
from nkisim.layout import MemoryRegion
from nkisim.registers import NKIObject
from nkisim.tensor import NkiTensor

sbuf, psum, private_hbm, shared_hbm = MemoryRegion
hbm = private_hbm
float32, bfloat16 = "float32", "bfloat16"
