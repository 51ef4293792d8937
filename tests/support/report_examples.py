"""A report made by hand: every number is different, so that a mix-up shows."""

from trnconv.report.content import (
    Budget,
    BusySpan,
    Contender,
    Effect,
    KindRow,
    LaneStrip,
    LatencyRow,
    LayerRow,
    LayerTimeline,
    MachineFacts,
    Origin,
    ReadingRow,
    Report,
    Sensitivity,
    Subject,
    Totals,
)


def layer(number, c_in, c_out, ns, calls, **others):
    """A row; shares are of the 1,000,000 ns that the layers of `example` take."""
    given = {
        "number": number,
        "modules": (f"decoder.block.{number}.conv", f"decoder.<other>.{number}"),
        "c_in": c_in,
        "c_out": c_out,
        "kernel": (3, 3, 3),
        "stride": (1, 1, 1),
        "size": (4, 60, 104),
        "out": (4, 60, 104),
        "calls": calls,
        "ns": ns,
        "total_ns": calls * ns,
        "share": calls * ns / 1e6,
        "algorithm": "direct",
        "bound": "tensor",
        "multiply_adds": 10**9 * number,
        "hbm_bytes": 3_000_000 * number,
        "flop_per_byte": 700.0 / number,
        "tflops": 70.0 / number,
        "of_peak": 0.9 / number,
        "instructions": 1200 + number,
        "total_instructions": calls * (1200 + number),
        "launches": 1,
        "sbuf_bytes_per_partition": 100_000 + number,
        "baseline_ns": 2.0 * ns,
    }
    return LayerRow(**{**given, **others})


def example(**others):
    """Three layers, of which one was scheduled."""
    rows = (
        layer(1, 96, 97, 120_000.0, 5),
        layer(2, 192, 3, 150_000.0, 2, bound="dma", algorithm="F(2,3), rows", baseline_ns=None),
        layer(3, 16, 384, 50_000.0, 2, bound="evict", stride=(1, 2, 2)),
    )
    strip = LaneStrip(
        lane="tensor",
        is_dma=False,
        share=0.875,
        idle="15.00 us: 15.00 for dma loads",
        levels=(1.0, 0.75, 0.875, 0.875),
        blocks=(BusySpan(begin_ns=50_000.0, end_ns=60_000.0, op="nc_matmul"),),
    )
    loads = LaneStrip(
        lane="dma loads", is_dma=True, share=0.25, idle="never idle", levels=(0.25,) * 4, blocks=()
    )
    timeline = LayerTimeline(
        number=1,
        ns=121_000.0,
        bound="tensor",
        plan="direct, blocks of 1 frames x 2 rows x 104 columns",
        launches=1,
        core=0,
        ends_ns=(121_000.0,),
        mfu=0.61,
        sbuf_peak_bytes_per_partition=101_000,
        psum_peak_banks=7,
        window_begin_ns=50_000.0,
        window_end_ns=70_000.0,
        extrapolated=((80_000.0, 100_000.0),),
        strips=(strip, loads),
    )
    made = Report(
        subject=Subject(
            kind="model",
            title="A model & its <decoder>",
            name="model",
            phase="decode",
            size="480x832x81",
            source="by hand",
        ),
        origin=Origin(
            command="trnconv report --model model -o 'a b.html'",
            date="2026-01-02",
            trnconv_version="1.2.3",
            nkisim_version="4.5.6",
            python_version="3.11.0",
        ),
        machine=MachineFacts(
            name="trn2",
            constants_version="2",
            reading="default",
            cores=1,
            peak_tflops=78.6,
            hbm_gb_per_s=368.0,
            sbuf_bytes_per_partition=212_984,
            psum_banks=8,
            cores_per_chip=8,
        ),
        latencies=(
            LatencyRow(cores=1, seconds=0.00125, bound="", how="planned for one core"),
            LatencyRow(cores=8, seconds=0.00015625, bound="at least", how="an even share each"),
        ),
        range_seconds=(0.001, 0.0021),
        totals=Totals(
            accuracy="bf16",
            seconds=0.001,
            whole_seconds=0.00125,
            baseline_seconds=0.00173,
            baseline_whole_seconds=0.00273,
            calls=9,
            launches=9,
            multiply_adds=15 * 10**9,
            executed_multiply_adds=16 * 10**9,
            hbm_bytes=45_000_000,
            copied_bytes=1_230_000,
            static_instructions=10_815,
        ),
        layers=rows,
        others=(
            KindRow(
                kind="rms norm",
                calls=3,
                moved_bytes=90_000_000,
                as_written_bytes=500_000_000,
                seconds=0.00025,
                share=0.2,
                bound="hbm",
                price_of="a kernel of ours",
            ),
        ),
        timelines=(timeline,),
        budgets=(
            Budget(name="Instructions", used=10_815, limit=5e6, unit="", note="static"),
            Budget(name="HBM", used=13e9, limit=12e9, unit="B", note="too much"),
        ),
        contenders=(
            Contender(name="ours", seconds=0.001, is_subject=True, note="this"),
            Contender(name="baseline", seconds=0.00173, is_subject=False, note="that"),
        ),
        sensitivity=Sensitivity(
            readings=(
                ReadingRow(
                    number=1,
                    cost_model_ns=120_000.0,
                    optimistic_ns=118_580.0,
                    default_ns=121_000.0,
                    pessimistic_ns=133_100.0,
                ),
            ),
            scheduled_share=0.6,
            effects_of=1,
            effects_cut=", 6 of 60 rows with the same plan",
            effects=(
                Effect(
                    name="pe_gap_cycles",
                    default=16.0,
                    optimistic=7.0,
                    pessimistic=27.0,
                    optimistic_change=-0.015,
                    pessimistic_change=0.032,
                ),
            ),
            without_effect=("launch_ns",),
        ),
        modelled=("This is modelled.",),
        left_out=("Never measured.",),
    )
    return made if not others else type(made)(**{**vars(made), **others})
