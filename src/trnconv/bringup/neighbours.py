"""The probe of point to point: every rank sends to the next and receives from the one before.

Run it with one process a core, as torchrun starts them. It asks the backend of the process group:

    torchrun --nproc-per-node 2 -m trnconv.bringup.neighbours neuron
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Final

_TIMEOUT: Final = timedelta(seconds=60)
_ELEMS: Final = 1000


def exchanged(device: str) -> bool:
    """Whether what the rank before sent came here; on every rank of the default group."""
    import torch  # noqa: PLC0415 (nothing else of this package needs it when it is imported)
    import torch.distributed as dist  # noqa: PLC0415

    rank, ranks = dist.get_rank(), dist.get_world_size()
    before = (rank - 1) % ranks
    sent = torch.full((_ELEMS,), float(rank)).to(device)
    received = torch.zeros(_ELEMS).to(device)
    messages = [
        dist.P2POp(dist.isend, sent, (rank + 1) % ranks),
        dist.P2POp(dist.irecv, received, before),
    ]
    for work in dist.batch_isend_irecv(messages):
        work.wait(_TIMEOUT)
    return bool((received.cpu() == before).all())


def main(arguments: list[str]) -> int:
    """Exit code 0 if it worked; the words say which workaround to apply."""
    import torch.distributed as dist  # noqa: PLC0415

    backend = arguments[0] if arguments else "neuron"
    dist.init_process_group(backend, timeout=_TIMEOUT)
    try:
        worked = exchanged("neuron" if backend == "neuron" else "cpu")
        words = "works: trnconv bringup --apply point-to-point" if worked else "is wrong"
    except RuntimeError as error:
        worked, words = False, f"is refused ({error}): rows go by all_gather, as they do now"
    sys.stdout.write(f"rank {dist.get_rank()}: point to point on {backend} {words}\n")
    dist.destroy_process_group()
    return 0 if worked else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
