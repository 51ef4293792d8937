"""Fabric: how the cores of an instance reach each other. Sources as in `machine.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nkisim.machine import TRN1, TRN2, TRN3, Assumption, Machine, Reading


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """How the cores of an instance reach each other."""

    cores_per_chip: int  # HW
    chips: int  # HW: of the largest instance
    link_bytes_per_ns: float  # HW: NeuronLink of a chip inside the instance, all directions
    neighbours: int  # HW: chips that share those links, a torus on trn1 and trn2
    message_ns: float = Assumption(5000, 15000, 40000)  # not published: a collective of few bytes

    def bytes_per_ns(self, machine: Machine, *, same_chip: bool) -> float:
        """From one core to the next: through the memory of a chip, or one link of it, one way."""
        if same_chip:
            return machine.timing.dma_engines * machine.timing.dma_bytes_per_ns
        return self.link_bytes_per_ns / self.neighbours / 2

    def read(self, reading: Reading) -> Fabric:
        """With its open point settled one way."""
        assert isinstance(self.message_ns, Assumption)
        return replace(self, message_ns=self.message_ns.read(reading))


FABRICS = {
    TRN1.name: Fabric(cores_per_chip=2, chips=16, link_bytes_per_ns=384, neighbours=4),
    TRN2.name: Fabric(cores_per_chip=8, chips=16, link_bytes_per_ns=1024, neighbours=4),
    TRN3.name: Fabric(cores_per_chip=8, chips=16, link_bytes_per_ns=2560, neighbours=4),
}
