"""Tracebacks that end at the user's line, not inside of nkisim."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final

from nkisim.errors import NkiValidationError
from nkisim.public_calls import unknown_attribute
from nkisim.source_lines import up_to_user, user_frame

VARIABLE: Final = "NKISIM_TRACEBACK"
FULL: Final = "full"


def ending_at_user(error: Exception) -> Exception:
    """The error, its traceback without nkisim's frames; NKISIM_TRACEBACK=full keeps them.

    What was refused before a kernel ran has no frame of the user's below nkisim's: it gets the
    caller's. An attribute that a tensor does not have becomes a refusal that says so.
    """
    if not isinstance(error, NkiValidationError):
        unknown = unknown_attribute(error) if isinstance(error, AttributeError) else None
        if unknown is None:
            return error
        error = unknown.with_traceback(error.__traceback__)
    if os.environ.get(VARIABLE) == FULL:
        return error
    kept = up_to_user(error.__traceback__)
    frame = user_frame()
    if kept is None and frame is not None:
        kept = TracebackType(None, frame, frame.f_lasti, frame.f_lineno)
    return error.with_traceback(kept)
