"""Packed weights, kept on their device for as long as the weight they were made of is unchanged.

A weight is changed when its version is: in-place operations, optimizers and load_state_dict move
it. Writing through `.data` does not, for autograd neither; then call `forget_packed_weights`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping

import torch

_Images = dict[Hashable, tuple[int, torch.Tensor]]  # by use: the version packed, and the image
_kept: MutableMapping[torch.Tensor, _Images] = torch.utils.weak.WeakTensorKeyDictionary()


def packed_once(w: torch.Tensor, use: Hashable, pack: Callable[[], torch.Tensor]) -> torch.Tensor:
    """`pack()`, or what it returned for this version of w and this use; w is not kept alive."""
    if w.is_inference():  # has no version
        return pack()
    images: _Images = _kept.setdefault(w, {})
    version, image = images.get(use, (None, None))
    if image is None or version != w._version:  # noqa: SLF001 (torch documents it by this name)
        image = pack()
        images[use] = (w._version, image)  # noqa: SLF001
    return image


def forget_packed_weights() -> None:
    """Pack again at the next call."""
    _kept.clear()
