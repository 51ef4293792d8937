"""What the doubles of the vendor's packages can be told to fail at.

Each failure strikes whatever kernel does the thing, probe or layer, so that with its workaround
applied the ladder passes only if no kernel does it any more. Failures without a workaround are of
what no kernel does: a probe notes them.

 1  recipe-argument     an object as argument is refused
 2  legalisation        the pass for tensors that are written again breaks a kernel
 3  stale-cache         compiled kernels are kept by their tensors alone
 4  addresses           SBUF tensors at addresses do not compile (NCC_INLA001)
 5  rotation            tiles at addresses that are written again are wrong when addresses rotate
 6  partition-split     a DMA that splits the partition axis is refused
 6b five-dimensions     a DMA of five dimensions does not compile
 7  dma-transpose       a DMA that transposes aborts
 8  load-ahead          a load that overtakes a store brings nothing
 9  growing-bank        adding to a bank that was read starts from zero
10  psum-in-place       writing the bank that is read is wrong
10b strided-eviction    sums that leave PSUM to columns with a step are wrong
11  fp16-subnormals     subnormal fp16 values are flushed
12  scalar-bias         a bias added to a copy on the Scalar engine is refused (NCC_IBVF043)
13  gpsimd-sum          elementwise work on GpSimd is refused (NCC_IXCG965)
14  loops               no loop compiles
15  psum-in-loop        a PSUM tensor inside of a loop does not compile (NCC_IBIR092)
16  counted-offsets     a run-time offset in a DMA does not compile (NCC_IBIR829)
17  loaded-offsets      an offset from a cell does not compile (NCC_IBIR040)
18  sbuf-in-two-loops   a tile that two loops share is wrong in the second
19  fenced-loop         what a loop stored is wrong in spite of a fence
20  unfenced-loop       what a loop stored is lost without a fence
21  long-loops          more than 1,024 iterations stall
22  two-programs        programs that differ do not compile (NCC_IXGM002)
23  two-looping-programs  programs with loops that differ hang
24  no-nki-op           torch_neuronx has wrap_nki and no nki_op
25  no-compile          torch.compile cannot trace a kernel
26  device-contiguous   .contiguous() of a view on the device raises
27  no-point-to-point   send and receive of backend "neuron" raise
28  no-dispatch-modes   a dispatch mode of torch, as patch_ uses it, raises
29  one-launch-a-graph  a compiled graph with two kernels does not compile
"""

from dataclasses import dataclass
from unittest import mock

import numpy as np

import neuron_features as features
from nkisim.device_rules.rule import DeviceRule


class CompilerError(RuntimeError):
    """neuronx-cc ended with a code."""


class StallError(RuntimeError):
    """The runtime gave up waiting."""


@dataclass(frozen=True)
class Failure:
    """What fails; `check` is where the ladder has to stop, `workaround` what it has to name.

    Without a workaround, `check` is the note that has to say no.
    """

    name: str
    check: str
    workaround: str = ""
    strikes: object = None  # of a call and its run: raises, or returns whether values are wrong
    rules: tuple = ()  # device rules that hold on this device too


def refuses(code, feature):
    def strikes(call, run):
        if feature(run):
            raise CompilerError(f"neuronx-cc failed with {code}")
        return False

    return strikes


def spoils(feature):
    return lambda _call, run: feature(run)


def _stalls(call, run):
    if features.longest_loop(run) > 1024:
        raise StallError("a kernel did not end within 60 s")
    return False


def _refuses_objects(call, run):
    if any(type(one).__module__.startswith("trnconv") for one in call.args):
        raise TypeError("unsupported argument type for nki kernel")
    return False


def _refuses_pass(call, run):
    if call.kernel.legalised:
        raise CompilerError("neuronx-cc failed with NCC_ILEG001 in the legalisation pass")
    return False


def _rotates(call, run):
    return call.kernel.rotates and features.fixed_and_written_again(run)


def _flushes(call, run):
    return any(
        isinstance(one, np.ndarray)
        and one.dtype == np.float16
        and ((one != 0) & (np.abs(one) < 2.0**-14)).any()
        for one in call.args
    )


def _both(first, second):
    return lambda run: first(run) and second(run)


NO_LOOPS = "no-loops"
IN_KERNELS = (
    Failure("recipe-argument", "recipe-argument", "recipe-in-closure", _refuses_objects),
    Failure("legalisation", "written-again", "no-legalisation", _refuses_pass),
    Failure("stale-cache", "another-recipe", "no-compile-cache"),
    Failure(
        "addresses",
        "sbuf-address",
        "placed-by-compiler",
        refuses("NCC_INLA001", features.fixed_addresses),
    ),
    Failure("rotation", "rotated-tiles", "no-address-rotation", _rotates),
    Failure(
        "dma-transpose",
        "dma-transpose",
        "no-dma-transpose",
        refuses("a DMA abort", features.transposing_dma),
    ),
    Failure("load-ahead", "load-ahead", "no-loads-ahead", spoils(features.loads_ahead)),
    Failure("growing-bank", "growing-bank", "no-growing-banks", spoils(features.growing_bank)),
    Failure("psum-in-place", "psum-in-place", "no-psum-in-place", spoils(features.psum_in_place)),
    Failure(
        "strided-eviction",
        "strided-eviction",
        "dense-evictions",
        spoils(features.strided_eviction),
    ),
    Failure("fp16-subnormals", "fp16-subnormals", "no-fp16-subnormals", _flushes),
    Failure("scalar-bias", "scalar-bias", "no-scalar-bias", rules=("activation-copy-bias",)),
    Failure("gpsimd-sum", "gpsimd-sum", "no-gpsimd-sums", rules=("gpsimd-elementwise",)),
    Failure("loops", "static-loop", NO_LOOPS, refuses("NCC_ICFG018", features.has_loop)),
    Failure(
        "psum-in-loop", "psum-in-loop", NO_LOOPS, refuses("NCC_IBIR092", features.psum_in_loop)
    ),
    Failure(
        "counted-offsets",
        "flat-offsets",
        NO_LOOPS,
        refuses("NCC_IBIR829", features.counted_offsets),
    ),
    Failure(
        "loaded-offsets", "cell-in-loop", NO_LOOPS, refuses("NCC_IBIR040", features.loaded_offsets)
    ),
    Failure("sbuf-in-two-loops", "sbuf-across-loops", NO_LOOPS, spoils(features.sbuf_in_two_loops)),
    Failure("fenced-loop", "fenced-loop", NO_LOOPS, spoils(features.fenced)),
    Failure("unfenced-loop", "unfenced-loop", "fence", spoils(features.unfenced)),
    Failure("long-loops", "trips-2048", "short-loops", _stalls),
    Failure(
        "two-programs", "two-cores", "one-core", refuses("NCC_IXGM002", features.programs_differ)
    ),
    Failure(
        "two-looping-programs",
        "two-cores-in-loops",
        "one-core",
        refuses("a hang", _both(features.programs_differ, features.has_loop)),
    ),
)
IN_NO_KERNEL = (
    Failure("partition-split", "partition-split", rules=("dma-split-partitions",)),
    Failure(
        "five-dimensions",
        "five-dimensions",
        strikes=refuses("NCC_IXCG967", features.five_dimensions),
    ),
)
BY_NAME = {failure.name: failure for failure in (*IN_KERNELS, *IN_NO_KERNEL)}


def rules_hold(names):
    """Device rules of these names hold on every machine while this is entered."""
    concerns = DeviceRule.concerns

    def on_this_device(self, machine):
        return self.name in names or concerns(self, machine)

    return mock.patch.object(DeviceRule, "concerns", on_this_device)
