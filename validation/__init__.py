"""Published measurements of NKI kernels, re-created and timed: `python -m validation`."""

import nkisim

nkisim.install()
