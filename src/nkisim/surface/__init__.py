"""The public names of NKI against what nkisim offers: implemented, refused or missing."""

from nkisim.surface.comparison import Row, compare, summary, table
from nkisim.surface.golden import Name, golden_names

__all__ = ["Name", "Row", "compare", "golden_names", "summary", "table"]
