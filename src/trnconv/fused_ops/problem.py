"""What all problems have in common: they say what they refuse, and have a price."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache

from nkisim.machine import Machine
from trnconv.errors import PlanError
from trnconv.fused_ops.price import LaunchPrice


class FusedOp(ABC):
    """A problem. Classes of problems are frozen dataclasses of sizes."""

    def refuses(self, machine: Machine, cores: int = 1) -> str:
        """Why there is no plan, in words; empty if there is one."""
        return next(self._reasons(machine, cores), "")

    def require(self, machine: Machine, cores: int) -> None:
        """PlanError with what is refused, if anything is."""
        why = self.refuses(machine, cores)
        if why:
            raise PlanError(f"{self} on {cores} cores of {machine.name}: {why}.")

    def price(self, machine: Machine, cores: int = 1) -> LaunchPrice:
        """What it takes, all launches together, by the cost model. Modelled."""
        self.require(machine, cores)
        return price_of(self, machine, cores)

    @abstractmethod
    def _reasons(self, machine: Machine, cores: int) -> Iterator[str]:
        """Everything that is refused."""

    @abstractmethod
    def modelled(self, machine: Machine, cores: int) -> LaunchPrice:
        """The price of what is not refused; `price` asks for it once."""


@lru_cache(maxsize=4096)
def price_of(problem: FusedOp, machine: Machine, cores: int) -> LaunchPrice:
    """The price, once for each problem."""
    return problem.modelled(machine, cores)
