"""Random instruction streams over a few small tensors, and an independent replay of a schedule.

Everything conflicts with everything here: nine tensors of a few bytes, two of them placed on top of
each other, used by all engines through plain, shifted and strided views.
"""

import itertools
import random

from timing_instructions import HBM, PSUM, engine, instruction, loop_of, tensor, trace_of, view

COLUMNS = 16
TABLES = ("exp", "gelu", "copy")


class Stream:
    """Draws instructions from one seed."""

    def __init__(self, seed, *, loop=-1, trips=1):
        self.rng = random.Random(seed)  # noqa: S311 (no secret)
        self.loop = loop
        self.sbuf = [tensor((8, COLUMNS)) for _ in range(3)]
        self.sbuf += [tensor((8, COLUMNS), place=(0, byte)) for byte in (0, 32)]
        self.psum = [tensor((8, COLUMNS), region=PSUM) for _ in range(2)]
        self.hbm = [tensor((16 + trips, 64), region=HBM) for _ in range(2)]

    def on_chip(self, rooms, rows=None, elems=None):
        rng = self.rng
        rows = rows or rng.choice([4, 8])
        elems = elems or rng.choice([4, 8, 12])
        stride = 2 if elems <= 4 and rng.random() < 0.3 else 1
        first = rng.choice([0, 8 - rows])
        column = rng.randint(0, COLUMNS - (elems - 1) * stride - 1)
        return view(
            rng.choice(rooms), (rows, elems), strides=(stride,), offset=first * COLUMNS + column
        )

    def in_hbm(self, rows, elems):
        """Views that move with a loop have a tensor of their own, which nothing else meets."""
        moves = self.loop >= 0 and self.rng.random() < 0.5
        room = self.hbm[0] if moves else self.hbm[1]
        top = self.rng.randint(0, 16 - rows)
        at = {"strides": (64, 1), "offset": top * 64 + self.rng.randint(0, 64 - elems)}
        if moves:
            return view(room, (rows, elems), step=64, loop=self.loop, **at)
        return view(room, (rows, elems), **at)

    def load(self):
        tile = self.on_chip(self.sbuf, rows=4)
        return instruction("dma_copy", engine.dma, [tile], [self.in_hbm(4, tile.layout.elems)])

    def store(self):
        tile = self.on_chip(self.sbuf, rows=4)
        return instruction("dma_copy", engine.dma, [self.in_hbm(4, tile.layout.elems)], [tile])

    def matmul(self):
        stationary = self.on_chip(self.sbuf, rows=8, elems=4)
        moving = self.on_chip(self.sbuf, rows=8)
        dst = self.on_chip(self.psum, rows=4, elems=moving.layout.elems)
        tile = {}
        if self.rng.random() < 0.5:
            tile = {"tile_size": (32, 128), "tile_position": (32 * self.rng.randrange(4), 0)}
        return instruction("nc_matmul", engine.tensor, [dst], [stationary, moving], **tile)

    def add(self):
        where = self.rng.choice([engine.vector, engine.vector, engine.gpsimd])
        rooms = self.sbuf if where is engine.gpsimd else self.sbuf + self.psum
        one = self.on_chip(self.sbuf)
        rows, elems = one.layout.partitions, one.layout.elems
        two, dst = self.on_chip(rooms, rows, elems), self.on_chip(rooms, rows, elems)
        return instruction("tensor_tensor", where, [dst], [one, two], op="add")

    def activate(self):
        data = self.on_chip(self.sbuf + self.psum)
        dst = self.on_chip(self.sbuf, data.layout.partitions, data.layout.elems)
        op = self.rng.choice(TABLES)
        return instruction("activation", engine.scalar, [dst], [data], op=op)

    def draw(self, count):
        kinds = (self.load, self.store, self.matmul, self.matmul, self.add, self.add, self.activate)
        return [self.rng.choice(kinds)() for _ in range(count)]


def straight(seed, count):
    """A trace without loops."""
    return trace_of(*Stream(seed).draw(count))


def with_loop(seed, trips, body=12):
    """Straight code, a loop whose HBM views move, and straight code."""
    before, after = Stream(seed).draw(6), Stream(seed + 1).draw(6)
    inside = Stream(seed + 2, loop=0, trips=trips).draw(body)
    return trace_of(*before, loop_of(trips, *inside), *after)


def places(access, iteration):
    """Every byte an access touches, as (memory, partition, byte)."""
    layout, allocation = access.layout, access.allocation
    start = access.offset + access.step * iteration
    shared = allocation.address_bytes is not None
    memory = allocation.region if shared else id(allocation)
    pitch, size = allocation.bytes_per_partition, layout.itemsize_bytes
    found = set()
    for index in itertools.product(*map(range, layout.shape)):
        at = size * (start + sum(i * s for i, s in zip(index, layout.strides, strict=True)))
        row, byte = divmod(at, pitch)
        byte += allocation.address_bytes or 0
        found.update((memory, row, byte + extra) for extra in range(size))
    return found


def broken_waits(timeline, hop_ns):
    """Pairs of rows that touch the same bytes too early, as sentences. Looks at every pair."""
    events = timeline.events
    touched, iterations = [], {}
    for one in events.instructions:
        iteration = iterations[one.index] = iterations.get(one.index, -1) + 1
        read = set().union(*(places(access, iteration) for access in one.reads))
        written = set().union(*(places(access, iteration) for access in one.writes))
        touched.append((read, written))
    found = []
    for late in range(len(events)):
        for early in range(late):
            least, why = _least_start(events, touched, early, late, hop_ns)
            if events.start_ns[late] < least - 1e-6:
                found.append(f"{why}: {events.instructions[late]} at {events.start_ns[late]}")
    return found


def _least_start(events, touched, early, late, hop_ns):
    first, second = events.instructions[early].engine, events.instructions[late].engine
    hop = 0.0 if first is engine.dma else hop_ns
    keeps_order = first is second and first is not engine.dma
    (read_early, wrote_early), (reads, writes) = touched[early], touched[late]
    least, why = 0.0, "free"
    if wrote_early & reads:
        least, why = events.visible_ns[early] + (0.0 if first is second else hop), "RAW"
    if wrote_early & writes:
        when = events.start_ns[early] if keeps_order else events.visible_ns[early] + hop
        least, why = max((least, why), (when, "WAW"))
    if read_early & writes:
        when = events.start_ns[early] if keeps_order else events.released_ns[early] + hop
        least, why = max((least, why), (when, "WAR"))
    return least, why


def pair(seed, meetings, *, between=6, trips=0):
    """The traces of two cores that meet so often; in a loop of `trips` iterations, if any."""
    cores = []
    for core in (0, 1):
        rng = random.Random(seed + core)  # noqa: S311 (no secret)
        stream = Stream(seed + 7 * core, loop=0 if trips else -1, trips=max(1, trips))
        items, marks = [], []
        for _ in range(meetings):
            items += stream.draw(rng.randint(0, between))
            barrier = instruction("core_barrier", engine.gpsimd, [], [stream.on_chip(stream.sbuf)])
            items.append(barrier)
            marks.append(barrier)
        items += stream.draw(between)
        trace = trace_of(loop_of(trips, *items)) if trips else trace_of(*items)
        if trips:
            trace.items[0].meets = meetings > 0
        trace.core = core
        trace.meetings = {barrier.index: number for number, barrier in enumerate(marks)}
        cores.append(trace)
    return cores
