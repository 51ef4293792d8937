"""Patching: the convolutions of a model, on instances, in one line and back."""

from trnconv.pytorch.patching.patch import patch_, patched, unpatch_
from trnconv.pytorch.patching.report import PatchReport

__all__ = ["PatchReport", "patch_", "patched", "unpatch_"]
