"""The three NeuronCores in numbers: the only file that holds hardware constants.

Sources, by key:
  A1, A2, A3  architecture guides of trn1, trn2, trn3 in the Neuron SDK documentation (2.32)
  ISA         signature stubs and docstrings of nki.isa (NKI 0.6)
  TS          nki.language.tile_size reference page
  KLR         constants of the open NKI front end, leanprover/KLR
  MIG         NKI migration guide
  I26         cost tables in the docstrings of nki.isa as of SDK 2.26 (removed since)
  PG          NKI performance guide; KO: kernel-optimisation tutorial and its profiles
  BW, DGE     DMA bandwidth guide, descriptor-generation guide; DIN: "Introduction to DMA" profiles
  THR         Neuron Explorer summary page on throttling; CCO: on compute-communication overlap
  DFA         design notes of nki-library's dynamic flash attention
  XG          a published conv2d write-up on trn2 (stanford-cs149 assignment 4)
  AT          awslabs/nki-autotune notes; SEED: the Autocomp conv1d post; AC: ucb-bar/autocomp
  HW          hardware pages of the instances in the Neuron SDK documentation
  KILN        foxl-ai/kiln, notes and probes of a device user (trn1 and trn2, October 2026)
  TB          Tilebench's NKI kernels and the times it publishes for them (trn2, both cores)
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum

from nkisim.acceptance import ASSUMED, Acceptance
from nkisim.errors import NkiValidationError
from nkisim.machine_workarounds import MEASURED, SEPARATOR, with_workarounds


class Reading(Enum):
    """How to read what the documents leave open."""

    optimistic = "optimistic"
    default = "default"
    pessimistic = "pessimistic"


class Assumption(float):
    """A number nobody has published, or that sources disagree on: one value per reading.

    It is the float of the default reading, so that a machine as it stands is the default one.
    """

    __slots__ = ("optimistic", "pessimistic")
    optimistic: float
    pessimistic: float

    def __new__(  # noqa: PYI034 (typing.Self arrives with Python 3.11)
        cls, optimistic: float, default: float, pessimistic: float
    ) -> Assumption:
        """The default value, with the two others beside it."""
        self = super().__new__(cls, default)
        self.optimistic = optimistic
        self.pessimistic = pessimistic
        return self

    def __reduce__(self) -> tuple[type[Assumption], tuple[float, float, float]]:
        """What a copy is made of: machines are pickled and copied."""
        return Assumption, (self.optimistic, float(self), self.pessimistic)

    def read(self, reading: Reading) -> float:
        """The value of one reading."""
        if reading is Reading.default:
            return float(self)
        return self.optimistic if reading is Reading.optimistic else self.pessimistic


CONSTANTS_VERSION = "3"  # raised whenever a number below changes; printed with every modelled time


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Rates and costs of one generation. Cycles are of the engine in the name."""

    pe_ghz: float  # A1, A2, A3
    vector_ghz: float  # A1, A2, A3
    scalar_ghz: float  # A1, A2, A3
    gpsimd_ghz: float  # A1, A2, A3
    dma_bytes_per_ns: float  # BW: sustained by one of the 16 engines
    hbm_bytes_per_ns: float  # A1, A2, A3: a stack of two cores; half of it if both are busy
    dma_descriptor_floor_ns: float  # KO profiles 35; 53 all-in; BW curve 107 (at 23 B/ns)
    dma_ring_floor_ns: float  # the same of descriptors built beforehand: XG and AC see none
    dma_default_mode: str  # what dge_mode.unknown stands for: prebuilt rings on trn1, DGE later
    table_load_ns: float  # profiles: 368 (trn1), 1,300 (trn2)
    pe_busy_rate: float  # KILN: what an activity throttle leaves of the clock when busy
    pe_cold_rate: float  # THR: half rate until warm on trn2 and trn3; 1 means no ramp
    pe_quarter_rate: float  # KILN, TB: of matmuls that use at most a quarter of the array
    pe_half_rate: float  # KILN: of those that use more than a quarter and at most half of it
    psum_port_shared: float  # A1, KILN: Vector and Scalar engine take turns on PSUM; trn1 only
    vector_wide_16bit: bool  # A2: 2x and 4x modes for 16-bit copies and tensor_scalar
    vector_wide_8bit: bool  # A3: the same modes for fp8
    vector_pair_16bit_free: bool  # A2: 2-input 16-bit SBUF ops at one element a cycle, any op
    scalar_wide_16bit: bool  # A3: Scalar engine copies 16-bit types at 2x
    fp32_transpose_passes: int  # I26, A2: fp32 nc_transpose on the Tensor engine

    pe_min_cycles: int = 64  # A1, I26: initiation interval of a matmul
    pe_fp32_passes: int = 2  # KO: two LDWEIGHTS + MATMUL pairs (fp32_mode LOW_HIGH)
    pe_fp32_cycles_per_column: int = 2  # KO: 1,031 cycles a pass for 512 columns
    pe_gap_cycles: float = Assumption(7, 16, 27)  # KO 7, XG 12..25, AT 27
    weight_load_cycles: float = Assumption(32, 32, 240)  # A1: M/4; XG would allow 240
    weight_load_fp32_cycles: float = Assumption(64, 570, 570)  # XG; KO: 190 ns = 456
    pe_wide_stride_cycles: float = Assumption(1, 2, 2)  # a column; A1 has 2x for other engines
    pe_latency_cycles: int = 395  # KO, PG: stream time + 165 ns until PSUM is readable
    pe_warm_ns: float = 3000.0  # THR: work needed to reach the full rate
    pe_cold_idle_ns: float = 1500.0  # THR: a 3 us window under half use makes PE cold again
    row_tiles_parallel: float = Assumption(1, 1, 0)  # ISA: disjoint row tiles run together
    column_tiles_parallel: float = Assumption(1, 0, 0)  # ISA body says yes, parameters no
    engine_min_cycles: int = 64  # I26: MIN_II of Vector and Scalar instructions
    vector_startup_cycles: float = Assumption(0, 48, 64)  # I26 none; KO 20..50; A1 ~60
    vector_latency_cycles: float = Assumption(100, 150, 160)  # KO 148, nki-library 144
    scalar_startup_cycles: float = Assumption(0, 48, 64)  # as Vector (I26, A1): same port
    scalar_latency_cycles: float = Assumption(200, 250, 358)  # PG 200..264, DIN 358
    gpsimd_startup_cycles: int = 150  # I26
    gpsimd_cycles_per_elem: float = Assumption(1, 2, 2)  # I26: 1 for iota; others not published
    reciprocal_cycles_per_elem: float = Assumption(2.6, 2.6, 8)  # an NKIBench profile; I26 8
    accumulator_read_cycles: int = 64  # A1: ActReadAccumulator, I26: tensor_scalar_reduce + MIN_II
    dynamic_copy_min_cycles: int = 600  # I26: tensor copies with a run-time offset
    wide_stride_bytes: int = 16  # A1: a larger innermost stride halves the rate
    semaphore_ns: float = Assumption(35, 60, 60)  # PG, DIN: engine to engine
    dma_engines: int = 16  # A1
    dma_packet_bytes: int = 4096  # CCO: the default; a run inside HBM is cut into such packets
    dma_descriptor_overhead_ns: float = 10.0  # KO: 99.5 ns for 2 KiB at 23 B/ns
    dma_issue_static_ns: float = Assumption(50, 100, 320)  # a doorbell; AT trn1 GEMM 320
    dma_issue_hwdge_ns: float = Assumption(490, 600, 630)  # DGE ~600; XG 490..630
    dma_issue_swdge_ns: float = Assumption(490, 900, 1000)  # DIN: 0.9 us of GpSimd work
    dma_issue_queues: float = Assumption(2, 1, 1)  # A2: two DGE blocks; XG saw one at work
    dma_start_ns: float = Assumption(800, 1300, 1500)  # DIN 740..1000, BW 1,300
    dma_done_ns: float = Assumption(200, 300, 300)  # DIN: last byte to the consumer
    dma_queue_per_direction: float = Assumption(1, 1, 0)  # not published; 0: one for all
    dma_transpose_rate: float = 0.9  # A2, from HBM; from SBUF 0.5
    dma_transpose_4_byte_rate: float = Assumption(1, 0.5, 0.5)  # TB; A2 makes no difference
    dma_transpose_sbuf_rate: float = 0.5  # A2
    dma_compute_rate: float = 0.5  # A2, before NeuronCore-v4
    dma_partition_bound: float = Assumption(0, 0, 1)  # DIN: engine e serves 8 partitions
    dma_partitions_per_engine: int = 8  # DIN
    reorder_window: float = Assumption(64, 1, 1)  # not published; we take the stream in its order
    loop_iteration_ns: float = Assumption(1400, 4000, 9000)  # DFA 4 to 9 us on trn2; KILN's least
    core_barrier_ns: float = Assumption(1000, 1500, 2000)  # not published
    sendrecv_ns: float = Assumption(2000, 2500, 3000)  # not published
    register_load_ns: float = Assumption(300, 2000, 2000)  # not published; from and to HBM
    register_load_sbuf_ns: float = Assumption(300, 300, 2000)  # not published; from and to SBUF
    launch_ns: float = Assumption(8000, 10000, 38000)  # XG 10; DIN profiles 14..33 + 5

    @property
    def pe_columns_per_ns(self) -> float:
        """The rate of the Tensor engine while it is busy; its peak is `pe_ghz`."""
        return self.pe_ghz * self.pe_busy_rate

    def pe_rate(self, share: float) -> float:
        """The part of its rate at which the Tensor engine runs if so much of the array works."""
        if share <= 0.25:
            return self.pe_quarter_rate
        return self.pe_half_rate if share <= 0.5 else 1.0

    def read(self, reading: Reading) -> Timing:
        """The same facts with every assumption replaced by its value in one reading."""
        values = {name: value.read(reading) for name, value in self.assumptions().items()}
        return replace(self, **values)  # type: ignore[arg-type] # all of them are float fields

    def assumptions(self) -> dict[str, Assumption]:
        """The open points by name."""
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in named if isinstance(value, Assumption)}


V2, V3, V4 = 2, 3, 4  # NeuronCore versions of trn1, trn2, trn3
PARTITIONS = 128  # A1: SBUF and PSUM partitions, PE rows and columns, of every generation
QUADRANT = 32  # A1: engines start on partition 0, 32, 64 or 96


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One NeuronCore generation: what it holds and what one instruction may ask of it."""

    name: str
    generation: int
    sbuf_physical_bytes_per_partition: int  # A1, A2, A3
    sbuf_usable_bytes_per_partition: int  # KLR; physical less 16 KiB DMA scratch (and 8 B on v3+)
    hbm_bytes: int  # HW: of a launch; a chip's HBM per pair of cores (trn1: per core)
    matmul_moving_max_elems_fp32: int  # ISA nc_matmul, fp32 destination
    matmul_moving_max_elems_bf16: int  # ISA nc_matmul, bf16 destination
    matmul_tile_min_rows: int  # ISA nc_matmul tile_size: 64 on v2, 32 from v3
    timing: Timing
    lnc_max: int = 2  # HW: cores of a logical NeuronCore, and its default; trn1 has none
    loop_trips_max: int | None = None  # device_rules loop-trips: known for trn2 only
    accepts: Acceptance = ASSUMED  # what of NKI it takes, as far as that is open
    measured: str = ""  # which constants were measured where, with what and when; empty: none

    partitions: int = PARTITIONS
    quadrant_partitions: int = QUADRANT
    sbuf_align_bytes: int = 4  # TS sbuf_min_align, value of the 0.6 wheel
    psum_align_bytes: int = 4  # TS psum_min_align, KLR
    psum_banks: int = 8  # A1
    psum_bank_bytes_per_partition: int = 2048  # A1
    stationary_max_elems: int = 128  # ISA nc_matmul
    bn_stats_max_elems: int = 512  # TS bn_stats_fmax
    sbuf_operand_max_elems: int = 65536  # A1: free elements of one SBUF operand
    psum_operand_max_elems: int = 4096  # A1: free elements of one PSUM operand
    access_free_dims_max: int = 4  # NKI access-pattern guide: partition + 4 free dimensions
    access_size_max: int = 65535  # A1: uint16 size field of a pattern dimension
    access_stride_max: int = 32767  # A1: int16 stride field, in elements
    search_min_elems: int = 8  # ISA max8, nc_find_index8, nc_match_replace8
    search_max_elems: int = 16384  # ISA max8, nc_find_index8, nc_match_replace8
    gather_max_indices: int = 4096  # ISA local_gather, indices per GpSimd core
    run_time_offset_reach_bytes: int = 2**32  # ISA 0.7 scalar_load: a 32-bit byte offset
    gather_group_partitions: int = 16  # A1: one GpSimd core serves 16 partitions
    vector_transpose_max: int = 32  # ISA nc_transpose on the Vector engine
    dma_compute_max_sources: int = 16  # ISA dma_compute
    dma_transpose_rows: int = 16  # ISA dma_transpose: rows of a descriptor-engine transpose
    gpsimd_dma_max_elems: int = 256  # ISA sendrecv: 1,024, 512, 256 B of 4-, 2-, 1-byte types
    mx_group_partitions: int = 8  # A3: one scale for 8 partitions x 4 packed values
    mx_scale_sets: int = 4  # MX guide: the scales of four tiles fit the start of a quadrant
    topk_min_elems: int = 8  # ISA topk
    topk_max_elems: int = 65535  # ISA topk
    topk_max_kept: int = 32767  # ISA topk

    def read(self, reading: Reading) -> Machine:
        """The machine with its open points settled one way."""
        return replace(self, timing=self.timing.read(reading))

    @property
    def constants(self) -> str:
        """What its times follow from, in words."""
        return CONSTANTS_VERSION + (f", {self.measured}" if self.measured else "")

    @property
    def base_name(self) -> str:
        """The generation's name, whatever was measured or worked around."""
        return self.name.partition(SEPARATOR)[0].partition(MEASURED)[0]

    @property
    def launch_cores(self) -> int:
        """Cores of a launch unless the process is told otherwise (NEURON_LOGICAL_NC_CONFIG).

        HW, "Logical NeuronCore configuration": 2 is the default on trn2 and trn3, where two cores
        share an HBM stack and run one kernel; trn1 has physical cores only. A launch of another
        size fails there, or computes a half (device rules grid-below-lnc, grid-above-lnc).
        """
        return self.lnc_max

    @property
    def psum_bytes_per_partition(self) -> int:
        """All banks of one partition."""
        return self.psum_banks * self.psum_bank_bytes_per_partition

    @property
    def psum_bank_fp32_elems(self) -> int:
        """fp32 values one partition of one bank holds."""
        return self.psum_bank_bytes_per_partition // 4


TRN1 = Machine(
    name="trn1",
    generation=V2,
    lnc_max=1,
    sbuf_physical_bytes_per_partition=192 * 1024,
    sbuf_usable_bytes_per_partition=180_224,
    hbm_bytes=16 * 2**30,
    matmul_moving_max_elems_fp32=512,
    matmul_moving_max_elems_bf16=512,
    matmul_tile_min_rows=64,
    timing=Timing(
        pe_ghz=2.8,
        vector_ghz=1.12,
        scalar_ghz=1.4,
        gpsimd_ghz=1.4,
        dma_bytes_per_ns=Assumption(18.1, 17, 17),  # PG profile 18.1; BW 17
        hbm_bytes_per_ns=Assumption(820, 820, 410),
        dma_descriptor_floor_ns=Assumption(47, 58, 145),  # trn2's in bytes, at 17 B/ns
        dma_ring_floor_ns=Assumption(0, 0, 145),
        dma_default_mode="none",
        table_load_ns=368.0,
        pe_busy_rate=Assumption(1, 0.875, 0.875),  # A1 2.8 GHz; KILN a throttle at 87.5 %
        pe_cold_rate=Assumption(1, 1, 1),
        pe_quarter_rate=Assumption(1, 0.55, 0.52),  # KILN V10 219 / 373, V7 219 / 421
        pe_half_rate=Assumption(1, 0.81, 0.81),  # KILN V9 219 / 271
        psum_port_shared=Assumption(0, 1, 1),
        vector_wide_16bit=False,
        vector_wide_8bit=False,
        vector_pair_16bit_free=False,
        scalar_wide_16bit=False,
        fp32_transpose_passes=4,
        loop_iteration_ns=Assumption(1400, 1400, 4000),  # KILN V27: an empty body, 64 iterations
        weight_load_fp32_cycles=Assumption(64, 64, 456),  # KILN V5, V13: hidden behind 128 columns
    ),
)
TRN2 = Machine(
    name="trn2",
    generation=V3,
    sbuf_physical_bytes_per_partition=224 * 1024,
    sbuf_usable_bytes_per_partition=212_984,
    hbm_bytes=24 * 2**30,
    matmul_moving_max_elems_fp32=512,
    matmul_moving_max_elems_bf16=512,
    matmul_tile_min_rows=32,
    loop_trips_max=2048,
    timing=Timing(
        pe_ghz=2.4,
        vector_ghz=0.96,
        scalar_ghz=1.2,
        gpsimd_ghz=1.2,
        dma_bytes_per_ns=23.0,
        hbm_bytes_per_ns=Assumption(720, 720, 360),
        dma_descriptor_floor_ns=Assumption(35, 43, 107),
        dma_ring_floor_ns=Assumption(0, 0, 107),
        dma_default_mode="hwdge",
        table_load_ns=1300.0,
        pe_busy_rate=1.0,
        pe_cold_rate=Assumption(1, 0.5, 0.5),
        pe_quarter_rate=Assumption(1, 0.5, 0.5),  # TB V49 to V55: 0.88 ns a column of 64 x 64
        pe_half_rate=Assumption(1, 1, 0.5),
        psum_port_shared=0.0,
        vector_wide_16bit=True,
        vector_wide_8bit=False,
        vector_pair_16bit_free=True,
        scalar_wide_16bit=False,
        fp32_transpose_passes=2,
    ),
)
TRN3 = Machine(
    name="trn3",
    generation=V4,
    sbuf_physical_bytes_per_partition=256 * 1024,
    sbuf_usable_bytes_per_partition=245_752,
    hbm_bytes=36 * 2**30,
    matmul_moving_max_elems_fp32=4096,
    matmul_moving_max_elems_bf16=8192,
    matmul_tile_min_rows=32,
    timing=Timing(
        pe_ghz=2.4,
        vector_ghz=1.2,
        scalar_ghz=1.2,
        gpsimd_ghz=1.2,
        dma_bytes_per_ns=33.0,
        hbm_bytes_per_ns=Assumption(1180, 1180, 590),
        dma_descriptor_floor_ns=Assumption(24, 30, 75),  # trn2's in bytes, at 33 B/ns
        dma_ring_floor_ns=Assumption(0, 0, 75),
        dma_default_mode="hwdge",
        table_load_ns=1300.0,
        pe_busy_rate=1.0,
        pe_cold_rate=Assumption(1, 0.5, 0.5),
        pe_quarter_rate=Assumption(1, 0.5, 0.5),  # TB V49 to V55: 0.88 ns a column of 64 x 64
        pe_half_rate=Assumption(1, 1, 0.5),
        psum_port_shared=0.0,
        vector_wide_16bit=True,
        vector_wide_8bit=True,
        vector_pair_16bit_free=True,
        scalar_wide_16bit=True,
        fp32_transpose_passes=2,
    ),
)


MACHINES = {machine.name: machine for machine in (TRN1, TRN2, TRN3)}
_ALIASES = {"inf2": TRN1, "gen2": TRN1, "gen3": TRN2, "gen4": TRN3, **MACHINES}


def register(machine: Machine) -> Machine:
    """Let `find_machine` know a machine of this process by its name."""
    _ALIASES[machine.name] = machine
    return machine


def find_machine(machine: str | Machine) -> Machine:
    """The machine named trn1/inf2/gen2, trn2/gen3 or trn3/gen4; `+` and workarounds may follow."""
    if isinstance(machine, Machine):
        return machine
    base, *workarounds = machine.split(SEPARATOR)
    if base not in _ALIASES:
        raise NkiValidationError(
            f"unknown machine {machine!r}",
            limit=f"known machines: {', '.join(sorted(_ALIASES))}",
            remedy="name one of them",
        )
    return with_workarounds(_ALIASES[base], *workarounds) if workarounds else _ALIASES[base]
