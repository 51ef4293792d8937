"""Engines as clocks: what hides, what runs side by side, what waits. Times in ns, by hand."""

from dataclasses import replace

import pytest

from nkisim.machine import TRN2
from nkisim.timing.costs import Cost, Transfer
from nkisim.timing.dma_engines import DmaEngines
from nkisim.timing.engines import ComputeEngine, ScalarEngine, TensorEngine
from nkisim.timing.shared_limit import SharedLimit

approx = pytest.approx


def machine(**timing):
    return replace(TRN2, timing=replace(TRN2.timing, **timing))


def warm_array():
    return TensorEngine(machine(pe_cold_rate=1.0, pe_ghz=2.0))  # 64 cycles are 32 ns


def engines_of(on, hbm=None, core=0):
    return DmaEngines(on, SharedLimit() if hbm is None else hbm, core)


def starts(array, *costs, ready=0.0):
    return [array.place(one, ready).start for one in costs]


def test_a_compute_engine_runs_one_after_the_other():
    vector = ComputeEngine()
    first = vector.place(Cost(100, 250), 40)
    assert first == (40, 140, 140, 290)  # start, busy end, released, visible
    second = vector.place(Cost(10, 30), 60)
    assert second == (140, 150, 150, 170)
    assert vector.busy == 110


def test_a_weight_load_hides_behind_the_matmul_before():
    matmul = Cost(100, 300, weight_load_ns=60, gap_ns=5)
    assert starts(warm_array(), matmul, matmul, matmul) == [60, 165, 270]


def test_a_weight_load_longer_than_the_matmul_before_does_not_hide():
    matmul = Cost(100, 300, weight_load_ns=150, gap_ns=5)
    assert starts(warm_array(), matmul, matmul, matmul) == [150, 300, 450]


def test_the_next_weights_load_while_the_last_pass_streams():
    two_passes = Cost(200, 400, weight_load_ns=150, weight_slot_ns=100, gap_ns=5)
    assert starts(warm_array(), two_passes, two_passes) == [150, 400]  # 150 + 100 + 150


def test_a_result_of_the_array_is_visible_a_latency_after_the_last_column():
    placed = warm_array().place(Cost(100, 300), 10)
    assert (placed.busy_end, placed.released, placed.visible) == (110, 110, 310)


def test_tiles_run_side_by_side_64_cycles_apart():
    array = warm_array()
    tiles = [Cost(200, 300, gap_ns=5, cells=(4 * row, 4 * row + 1)) for row in range(4)]
    assert starts(array, *tiles) == [0, 32, 64, 96]
    assert array.place(tiles[0], 0).start == 205  # its own part is busy until 200
    assert array.place(Cost(200, 300, gap_ns=5), 0).start == 410  # the whole array
    assert array.place(tiles[3], 0).start == 615
    assert array.free == 815


def test_tiles_are_reported_done_in_program_order():
    array = warm_array()
    array.place(Cost(200, 300, cells=(0,)), 0)
    short = array.place(Cost(50, 150, cells=(5,)), 0)
    assert (short.busy_end, short.released, short.visible) == (82, 200, 300)


def test_overlapping_tiles_do_not_run_side_by_side():
    row, column = Cost(200, 300, cells=(0, 1, 2, 3)), Cost(200, 300, cells=(1, 5, 9, 13))
    assert starts(warm_array(), row, column) == [0, 200]


def test_the_busy_time_of_side_by_side_tiles_counts_once():
    array = warm_array()
    array.place(Cost(200, 300, cells=(0,)), 0)  # 0 to 200
    array.place(Cost(50, 300, cells=(5,)), 0)  # 32 to 82, inside of it
    assert array.busy == 200
    array.place(Cost(200, 300, cells=(10,)), 0)  # 64 to 264
    assert array.busy == 264


def test_the_array_runs_at_half_rate_until_it_has_worked_for_3_us():
    array = TensorEngine(machine(pe_cold_rate=0.5))
    assert array.place(Cost(1000, 1000), 0).busy_end == 2000
    assert array.place(Cost(1000, 1000), 0).busy_end == 3500  # 1,000 cold, then 500 warm
    assert array.place(Cost(1000, 1000), 0).busy_end == 4500


def test_a_short_idle_time_only_puts_off_being_warm():
    array = TensorEngine(machine(pe_cold_rate=0.5))
    assert array.place(Cost(1000, 1000), 0).busy_end == 2000
    assert array.place(Cost(1000, 1000), 3000).busy_end == 4500
    assert array.place(Cost(1000, 1000), 5900).busy_end == 6900  # 1,400 idle, still warm


def test_a_long_idle_time_makes_the_array_cold_again():
    array = TensorEngine(machine(pe_cold_rate=0.5))
    array.place(Cost(4000, 4000), 0)  # 3,000 cold, 2,500 warm
    assert array.free == 5500
    assert array.place(Cost(1000, 1000), 7000).busy_end == 8000  # 1,500 idle
    assert array.place(Cost(1000, 1000), 9600).busy_end == 11600  # 1,600 idle


def test_tiles_side_by_side_warm_the_array_once():
    array = TensorEngine(machine(pe_cold_rate=0.5, pe_ghz=2.0))
    for row in range(4):
        array.place(Cost(1000, 1000, cells=(4 * row,)), 0)
    assert array.free == 96 + 2000  # not 4 times nearer to warm
    assert array.place(Cost(1000, 1000), 0).busy_end == approx(2096 + 904 + 548)


@pytest.mark.parametrize(("share", "takes"), [(0.25, 200), (0.26, 125), (0.5, 125), (0.51, 100)])
def test_a_matmul_on_a_small_part_of_the_array_is_slow(share, takes):
    array = TensorEngine(machine(pe_cold_rate=1.0, pe_quarter_rate=0.5, pe_half_rate=0.8))
    assert array.place(Cost(100, 300, array_share=share), 0).busy_end == takes


def test_small_matmuls_do_not_warm_the_array():
    array = TensorEngine(machine(pe_cold_rate=0.5, pe_quarter_rate=0.5))
    for _ in range(10):
        array.place(Cost(1000, 1000, array_share=0.25), 0)
    assert array.free == 20_000
    assert array.place(Cost(1000, 1000), 0).busy_end == 22_000
    warm = TensorEngine(machine(pe_cold_rate=0.5, pe_quarter_rate=0.5))
    warm.place(Cost(4000, 4000), 0)  # until 5,500
    assert warm.place(Cost(500, 500, array_share=0.25), 0).busy_end == 6500
    assert warm.place(Cost(1000, 1000), 0).busy_end == 7500  # 1,000 ns of small work are allowed
    assert warm.place(Cost(800, 800, array_share=0.25), 0).busy_end == 9100
    assert warm.place(Cost(1000, 1000), 0).busy_end == 11_100  # 1,600 ns are not


def test_tiles_side_by_side_count_together():
    """Four tiles of a quarter each: the first one is alone, the third makes it more than half."""
    array = TensorEngine(machine(pe_cold_rate=1.0, pe_ghz=2.0, pe_half_rate=0.8))
    tiles = [
        Cost(1000, 1000, array_share=0.25, cells=tuple(range(4 * row, 4 * row + 4)))
        for row in range(4)
    ]
    took = [placed.busy_end - placed.start for placed in (array.place(one, 0) for one in tiles)]
    assert took == [2000, 1250, 1000, 1000]


def test_two_engines_share_a_port_to_psum():
    port = SharedLimit()
    vector, scalar = ComputeEngine(port), ScalarEngine(1300, port)
    assert vector.place(Cost(500, 600, psum=True), 0).busy_end == 500
    assert scalar.place(Cost(300, 400, psum=True), 100).start == 500
    assert vector.place(Cost(500, 600), 0).start == 500  # this one is in SBUF
    assert scalar.place(Cost(300, 400), 0).start == 800
    assert vector.place(Cost(500, 600, psum=True), 5000).start == 5000
    late = ComputeEngine(port)
    assert late.place(Cost(100, 100, psum=True), 9000).start == 9000


def test_after_a_drain_nothing_starts_earlier_not_even_a_weight_load():
    array = warm_array()
    array.drain(1000)
    assert array.place(Cost(100, 300, weight_load_ns=60), 1000).start == 1060
    scalar = ScalarEngine(1300)
    scalar.drain(1000)
    assert scalar.place(Cost(100, 200, table="exp"), 1000).start == 2300


def test_a_table_is_loaded_when_the_function_changes():
    scalar = ScalarEngine(1300)
    exp, gelu, plain = (Cost(100, 200, table=table) for table in ("exp", "gelu", None))
    placed = [scalar.place(one, 0).start for one in (exp, exp, plain, exp, gelu, exp)]
    assert placed == [1300, 1400, 1500, 1600, 3000, 4400]
    assert scalar.busy == 6 * 100 + 3 * 1300


def test_a_table_is_loaded_while_the_engine_waits_for_data():
    scalar = ScalarEngine(1300)
    assert scalar.place(Cost(100, 200, table="exp"), 5000).start == 5000
    assert scalar.place(Cost(100, 200, table="gelu"), 6000).start == 6400  # 5,100 + 1,300


def transfer(descriptors=16, ns_each=100.0, engines=16, direction="load", hbm_bytes=7):
    return Transfer(
        direction=direction,
        descriptors=descriptors,
        ns_each=ns_each,
        engines=engines,
        hbm_bytes=hbm_bytes,
        start_ns=1300,
        done_ns=300,
    )


def dma(issue=500, **kind):
    return Cost(issue, issue, transfer=transfer(**kind))


def test_a_transfer_is_issued_starts_moves_and_is_reported():
    placed = engines_of(TRN2).place(dma(), 50)
    assert placed.start == 50
    assert placed.busy_end == 50 + 500 + 1300 + 100
    assert placed.visible == placed.released == 50 + 500 + 1300 + 100 + 300


def test_a_direction_issues_in_order_and_overlaps_its_latency():
    engines = engines_of(TRN2)
    ends = [engines.place(dma(), 0).busy_end for _ in range(3)]
    assert ends == [1900, 2400, 2900]  # one issue apart


def test_a_direction_moves_data_in_order():
    engines = engines_of(TRN2)
    ends = [engines.place(dma(ns_each=1000.0), 0).busy_end for _ in range(3)]
    assert ends == [2800, 3800, 4800]  # bound by the data, 1,000 each


def test_a_transfer_on_one_engine_leaves_the_others_to_the_next():
    engines = engines_of(TRN2)
    slow = engines.place(dma(descriptors=16, engines=1, issue=0), 0)
    assert slow.busy_end == 1300 + 1600
    assert engines.place(dma(issue=0), 0).busy_end == 1300 + 100 + 100


def test_directions_do_not_wait_for_each_other_but_share_the_issue_and_the_engines():
    engines = engines_of(TRN2)
    engines.place(dma(direction="store"), 100_000)  # waits for data
    assert engines.place(dma(), 0).start == 0
    both = engines_of(TRN2)
    for _ in range(10):
        both.place(dma(direction="store"), 0)
        last = both.place(dma(), 0)
    assert last.busy_end == 20 * 500 + 1300 + 100  # 20 issues by one generator
    two = engines_of(machine(dma_issue_queues=2.0))
    for _ in range(10):
        two.place(dma(direction="store"), 0)
        last = two.place(dma(), 0)
    assert last.busy_end == 10 * 500 + 1300 + 100


def test_directions_together_move_no_more_than_the_engines_can():
    engines = engines_of(TRN2)
    for _ in range(10):
        engines.place(dma(direction="store", ns_each=1000.0, issue=0), 0)
        last = engines.place(dma(ns_each=1000.0, issue=0), 0)
    assert last.busy_end == 1300 + 20 * 1000


def test_time_in_which_nothing_moved_is_lost():
    """Loads, a phase of computing, then loads and stores: together they get what one got before.

    But for the first of them, which is taken for one that runs beside the loads long ago.
    """
    engines = engines_of(TRN2)
    for _ in range(10):
        engines.place(dma(ns_each=1000.0, issue=0), 0)
    for _ in range(10):
        engines.place(dma(direction="store", ns_each=1000.0, issue=0), 100_000)
        last = engines.place(dma(ns_each=1000.0, issue=0), 100_000)
    assert last.busy_end == 100_000 + 1300 + 19 * 1000


def test_stores_that_come_late_do_not_hold_up_loads():
    """Stores run 50 us behind the loads; all the time both get half."""
    engines = engines_of(TRN2)
    for number in range(40):
        load = engines.place(dma(ns_each=1000.0, issue=0), 2000 * number)
        store = dma(direction="store", ns_each=1000.0, issue=0)
        stored = engines.place(store, 2000 * number + 50_000)
        assert load.busy_end <= 2000 * number + 1300 + 2000
        assert stored.busy_end == 2000 * number + 50_000 + 1300 + 1000


def test_read_that_way_a_load_waits_behind_a_store():
    engines = engines_of(machine(dma_queue_per_direction=0.0))
    engines.place(dma(direction="store"), 100_000)
    assert engines.place(dma(), 0).start == 100_500


def test_two_cores_share_hbm_and_nothing_else():
    """Each core alone moves 160,000 B in 100 ns of its engines; the stack takes 222 ns for that."""
    hbm = SharedLimit()
    cores = [engines_of(TRN2, hbm, core) for core in (0, 1)]
    for _ in range(10):
        ends = [one.place(dma(issue=0, hbm_bytes=160_000), 0).busy_end for one in cores]
    assert ends[1] == approx(1300 + 20 * 160_000 / 720)
    small = [engines_of(TRN2, hbm, core).place(dma(issue=0), 50_000) for core in (0, 1)]
    assert {one.busy_end for one in small} == {50_000 + 1300 + 100}


def test_transfers_move_no_more_than_hbm_gives():
    """720 B/ns on trn2; a copy inside HBM reads and writes, so that 16 engines ask for 736."""
    copied = {"direction": "within HBM", "issue": 0, "hbm_bytes": 144_000}  # 200 ns
    engines = engines_of(TRN2)
    ends = [engines.place(dma(**copied), 0).busy_end for _ in range(3)]
    assert ends == [1300 + 200, 1300 + 400, 1300 + 600]
    for _ in range(20):
        last = engines.place(dma(**copied | {"direction": "load"}), 0)
    assert last.busy_end == 1300 + 23 * 200  # behind the copies
    for _ in range(20):
        last = engines.place(dma(**copied | {"direction": "store"}), 0)
    assert last.busy_end == 1300 + 43 * 200


def test_dma_adds_up_issue_data_and_bytes():
    engines = engines_of(TRN2)
    engines.place(dma(), 0)
    engines.place(dma(direction="store", ns_each=50.0), 0)
    assert (engines.issue_busy, engines.busy, engines.hbm_bytes) == (1000, 150, 14)
