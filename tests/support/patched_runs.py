"""One call of a model as torch runs it, and one on our kernels, which must have done all of it."""

import torch

from recorded_convolutions import Recorder
from trnconv.pytorch import patched

CONVOLUTIONS = (torch.nn.modules.conv._ConvNd,)


class Unpatched:
    """A run of torch's own model: its result, and the convolutions it called."""

    def __init__(self, model, call):
        self.modules = set()
        hooks = [
            module.register_forward_hook(lambda *_, name=name: self.modules.add(name))
            for name, module in model.named_modules()
            if isinstance(module, CONVOLUTIONS)
        ]
        with Recorder() as recorder:
            self.y = call(model)
        for hook in hooks:
            hook.remove()
        self.calls = len(recorder.calls)


class Patched:
    """A run of the same model on our kernels, which it must have done alone."""

    def __init__(self, model, call, **options):
        with (
            patched(model, **{"backend": "nkisim", **options}) as self.report,
            Recorder() as recorder,
        ):
            self.y = call(model)
        self.calls_of_torch = recorder.calls

    def require_every_convolution(self, unpatched):
        stats = self.report.stats
        assert self.calls_of_torch == []
        assert self.report.left_to_torch == ()
        assert not stats.left_to_torch
        assert not stats.repeated
        assert unpatched.modules <= {work.module for work in stats.works}
        assert stats.calls == unpatched.calls > 0
