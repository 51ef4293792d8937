"""The one place that decides which `nki` a process uses: the real one, else nkisim.

`SOURCE` says which; it is named wherever a result or a time is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import nkisim

SOURCE = nkisim.install()

if TYPE_CHECKING:
    import nkisim.isa as nisa
    import nkisim.language as nl
    from nkisim.language import NKIObject
else:
    import nki.isa as nisa
    import nki.language as nl
    from nki.language import NKIObject

__all__ = ["SOURCE", "NKIObject", "nisa", "nl"]
