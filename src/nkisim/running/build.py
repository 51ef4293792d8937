"""How a compiler is asked to build a kernel: the options of nki.jit, and the switches of Kernel.

nkisim builds nothing, so none of them changes what a run computes. They are kept, can be read, and
are handed on by every method that makes a kernel from a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from nkisim.errors import UnsupportedError, refuse
from nkisim.running.schedule_edges import Edges

if TYPE_CHECKING:
    from typing_extensions import Self  # typing has it from Python 3.11 on

# Seen in shipped kernels: mode everywhere, the others in nki-library's core/qkv/qkv.py.
COMPILER_OPTIONS: Final = ("mode", "debug_kernel", "show_compiler_tb", "experimental_flags")


@dataclass(frozen=True)
class Build:
    """What a kernel's author asked of the compiler."""

    address_rotation: bool = True
    barrier_check: bool = False
    non_ssa_legalization: bool = False
    options: tuple[tuple[str, Any], ...] = ()  # of nki.jit


class Buildable:
    """Mixin: the switches of NKI's Kernel. Each returns a new kernel."""

    build: Build

    def _with_build(self, build: Build) -> Self:
        raise NotImplementedError

    def enable_address_rotation(self) -> Self:
        """Let the compiler move tensors of unrolled iterations apart: NKI's default."""
        return self._with_build(replace(self.build, address_rotation=True))

    def disable_address_rotation(self) -> Self:
        """Keep the compiler from moving tensors of unrolled iterations apart."""
        return self._with_build(replace(self.build, address_rotation=False))

    def enable_core_barrier_checker(self) -> Self:
        """Ask for the compiler's search for unordered accesses of two cores.

        nkisim looks for them in every launch on two cores, asked or not.
        """
        return self._with_build(replace(self.build, barrier_check=True))

    def disable_core_barrier_checker(self) -> Self:
        """Do without the compiler's search, NKI's default; nkisim's own stays."""
        return self._with_build(replace(self.build, barrier_check=False))

    def enable_non_ssa_legalization(self) -> Self:
        """Ask for the pass of that name, off by default since NKI 0.7.

        What it repairs is not documented; nkisim computes as if nothing needed repair.
        """
        return self._with_build(replace(self.build, non_ssa_legalization=True))


def build_of(options: Mapping[str, Any]) -> Build:
    """The build that the keyword arguments of nki.jit ask for, or a refusal."""
    if "platform_target" in options:
        refuse(
            "nki.jit",
            f"platform_target={options['platform_target']!r}",
            "removed in NKI 0.3",
            "set NEURON_PLATFORM_TARGET_OVERRIDE, or pass machine= to nkisim.run",
        )
    unknown = sorted(set(options).difference(COMPILER_OPTIONS))
    if unknown:
        raise UnsupportedError(
            f"option {', '.join(unknown)}",
            instruction="nki.jit",
            limit=f"known are {', '.join(COMPILER_OPTIONS)}: the compiler's, without effect here",
            remedy="drop it",
        )
    return Build(options=tuple(sorted(options.items())))


def schedule_edges(title: str, edges: Any) -> Edges:
    """The argument of with_schedule: pairs (consumer, producer or list of producers), by name."""
    if not isinstance(edges, (list, tuple)):
        _refuse_edge(title, edges)
    for edge in edges:
        if not isinstance(edge, tuple) or len(edge) != 2 or not isinstance(edge[0], str):
            _refuse_edge(title, edge)
        names = edge[1] if isinstance(edge[1], list) else [edge[1]]
        if not all(isinstance(name, str) for name in names):
            _refuse_edge(title, edge)
    return tuple((consumer, producers) for consumer, producers in edges)


def _refuse_edge(title: str, edge: object) -> None:
    refuse(
        title,
        f"with_schedule: {edge!r}",
        'pairs ("consumer", "producer") or ("consumer", ["producer", ...]) of instruction names',
        "give instructions a name= and list pairs of names",
    )
