"""The lint as it judges for NKI 0.6, whose front end parses a subset of Python."""

from functools import partial

import nkisim.lint

lint = partial(nkisim.lint.lint, nki="0.6")
lint_source = partial(nkisim.lint.lint_source, nki="0.6")
lint_file = partial(nkisim.lint.lint_file, nki="0.6")
