"""Random kernels for two cores, and their races by brute force.

A program is made of phases, each a few copies and computations of either core, and of meetings
between them. The oracle goes through every element of every tensor and through all chains of
waiting. It shares no code with nkisim: order is reachability in a graph of all events, and where
values come from is a term for every element.
"""

from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

import nkisim.isa as nisa
import nkisim.language as nl

ROWS, COLUMNS = 8, 4
SHARED = ("a", "b", "x")
TILES = 4
COMPUTE = ("vector", "gpsimd")
BARRIERS = ("gpsimd", "vector", "scalar", "sync")


@dataclass(frozen=True)
class Part:
    """Rows and columns of a tensor: (name, first row, end, first column, end, step)."""

    name: str
    rows: tuple
    columns: tuple

    def elements(self):
        return [(r, c) for r in range(*self.rows) for c in range(*self.columns)]

    def of(self, tensors):
        return tensors[self.name][slice(*self.rows), slice(*self.columns)]


@dataclass(frozen=True)
class Act:
    """One instruction of one core."""

    op: str
    engine: str
    dst: Part | None = None
    src: Part | None = None
    value: float = 0.0
    meeting: int = -1

    @property
    def reads(self):
        return [part for part in (self.src,) if part is not None]

    @property
    def writes(self):
        return [part for part in (self.dst,) if part is not None]


@dataclass
class Program:
    """The acts of both cores."""

    cores: list = field(default_factory=lambda: [[], []])

    def kernel(self, x):
        """The program as a kernel."""
        tensors = {
            name: nl.ndarray((ROWS, COLUMNS), "float32", nl.shared_hbm, name=name)
            for name in SHARED
            if name != "x"
        }
        tensors["x"] = x
        for number in range(TILES):
            tensors[number] = nl.ndarray((ROWS, COLUMNS), "float32", name=f"tile{number}")
        for act in self.cores[nl.program_id(0)]:
            issue(act, tensors)


def issue(act, tensors):
    engine = getattr(nisa.engine, act.engine)
    dst = act.dst and act.dst.of(tensors)
    src = act.src and act.src.of(tensors)
    if act.op == "dma_copy":
        nisa.dma_copy(dst, src)
    elif act.op == "tensor_copy":
        nisa.tensor_copy(dst, src, engine=engine)
    elif act.op == "memset":
        nisa.memset(dst, act.value, engine=engine)
    elif act.op == "core_barrier":
        nisa.core_barrier(dst, (0, 1), engine=engine)
    else:
        other = 1 - nl.program_id(0)
        nisa.sendrecv(src, dst, other, other, pipe_id=0)


def unlike(act):
    """The same act with another number."""
    return replace(act, value=3.0 - act.value) if act.op == "memset" else act


class Maker:
    """Makes up one program."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.meetings = 0

    def pick(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def make(self):
        program = Program()
        for phase in range(self.pick(1, 2, 3, 4)):
            if phase:
                self.meet(program)
            if self.rng.random() < 0.4:
                alike = self.acts()
                program.cores[0] += alike
                other_values = self.rng.random() < 0.4
                program.cores[1] += [unlike(act) for act in alike] if other_values else alike
            else:
                for core in (0, 1):
                    program.cores[core] += self.acts()
        return program

    def acts(self):
        return [self.act() for _ in range(self.pick(0, 1, 2, 3, 4))]

    def act(self):
        kind = self.pick("store", "store", "load", "load", "compute", "memset", "fence")
        if kind == "memset":
            return Act(
                "memset", self.pick(*COMPUTE), self.whole(self.tile()), value=self.pick(1.0, 2.0)
            )
        if kind == "compute":
            one, two = self.rng.permutation(TILES)[:2].tolist()
            return Act("tensor_copy", self.pick(*COMPUTE), self.whole(one), self.whole(two))
        shared = self.part(self.pick(*SHARED))
        if kind == "fence":
            return Act("dma_copy", "dma", shared, shared)
        count = shared.rows[1] - shared.rows[0]
        tile = Part(self.tile(), (0, count), shared.columns)
        dst, src = (shared, tile) if kind == "store" else (tile, shared)
        return Act("dma_copy", "dma", dst, src)

    def tile(self):
        return int(self.rng.integers(TILES))

    def whole(self, name):
        return Part(name, (0, ROWS), (0, COLUMNS, 1))

    def part(self, name):
        first = self.pick(0, 0, 2, 4)
        rows = (first, self.pick(*range(first + 2, ROWS + 1, 2)))
        return Part(name, rows, self.pick((0, 4, 1), (0, 4, 1), (0, 4, 2), (1, 4, 2), (0, 2, 1)))

    def meet(self, program):
        meeting, self.meetings = self.meetings, self.meetings + 1
        if self.rng.random() < 0.7:
            name = self.pick(*SHARED)
            data = self.whole(name) if self.rng.random() < 0.7 else self.part(name)
            engine = self.pick(*BARRIERS)
            acts = [Act("core_barrier", engine, data, data, meeting=meeting)] * 2
        else:
            tiles = [self.rng.permutation(TILES)[:2].tolist() for _ in range(2)]
            acts = [
                Act("sendrecv", "dma", self.whole(one), self.whole(two), meeting=meeting)
                for one, two in tiles
            ]
        for core in (0, 1):
            program.cores[core].append(acts[core])


def touched(act, *, writes):
    return {
        (part.name, *e) for part in (act.writes if writes else act.reads) for e in part.elements()
    }


class Oracle:
    """All races of a program: {(tensor, act of core 0, act of core 1)}."""

    def __init__(self, program):
        self.cores = program.cores
        self.reads = [[touched(a, writes=False) for a in acts] for acts in self.cores]
        self.writes = [[touched(a, writes=True) for a in acts] for acts in self.cores]
        self.reachable = self._closure()
        self.terms = self._terms()

    def races(self):
        found = set()
        for name, row, column in product(SHARED, range(ROWS), range(COLUMNS)):
            found |= {(name, *pair) for pair in self._races_at((name, row, column))}
        return {(n, i, j) for n, i, j in found if not self._ordered(i, j)}

    def _ordered(self, i, j):
        return (1, j) in self.reachable[0, i] or (0, i) in self.reachable[1, j]

    def _closure(self):
        after = {}
        for core, acts in enumerate(self.cores):
            for i in range(len(acts)):
                after[core, i] = {
                    (core, j) for j in range(i + 1, len(acts)) if self._waits(core, i, j)
                }
        where = [
            {a.meeting: i for i, a in enumerate(acts) if a.meeting >= 0} for acts in self.cores
        ]
        twins = {(c, i): (1 - c, where[1 - c][m]) for c in (0, 1) for m, i in where[c].items()}
        after |= {one: after[one] | after[other] for one, other in twins.items()}
        closed = {}
        for start in after:
            seen, todo = set(), [start]
            while todo:
                for following in after[todo.pop()]:
                    if following not in seen:
                        seen.add(following)
                        todo.append(following)
            closed[start] = seen
        return closed

    def _waits(self, core, i, j):
        one, two = self.cores[core][i], self.cores[core][j]
        if one.engine == two.engine != "dma":
            return True
        reads, writes = self.reads[core], self.writes[core]
        return bool(writes[i] & (reads[j] | writes[j]) or reads[i] & writes[j])

    def _races_at(self, element):
        epochs = [self._epochs(core, element[0]) for core in (0, 1)]
        for epoch in set(epochs[0]) | set(epochs[1]):
            uses = [
                [(i, kind) for i, kind in self._uses(core, element) if epochs[core][i] == epoch]
                for core in (0, 1)
            ]
            yield from self._conflicts(element, uses)

    def _epochs(self, core, name):
        """For every act how many barriers on all of the tensor came before it."""
        count, found = 0, []
        for act in self.cores[core]:
            found.append(count)
            whole = act.dst and len(act.dst.elements()) == ROWS * COLUMNS
            count += act.op == "core_barrier" and act.dst.name == name and whole
        return found

    def _uses(self, core, element):
        for i, act in enumerate(self.cores[core]):
            if act.op == "core_barrier":
                continue
            if element in self.reads[core][i]:
                yield i, "r"
            if element in self.writes[core][i] and act.dst != act.src:
                yield i, "w"

    def _conflicts(self, element, uses):
        writers = [[i for i, kind in each if kind == "w"] for each in uses]
        term = [{i: self.terms[core, i][element] for i in writers[core]} for core in (0, 1)]
        if writers[0] and writers[1] and term[0][writers[0][-1]] != term[1][writers[1][-1]]:
            yield from product(*writers)
        for core in (0, 1):
            own, theirs = None, writers[1 - core]
            for i, kind in uses[core]:
                if kind == "w":
                    own = term[core][i]
                elif own is None or any(term[1 - core][j] != own for j in theirs):
                    yield from ((i, j) if core == 0 else (j, i) for j in theirs)

    def _terms(self):
        """{(core, act): {element written: where its value comes from}}, in the order of nkisim."""
        numbers, found = {}, {}
        memory = {}

        def number(what):
            return numbers.setdefault(what, len(numbers))

        def read(core, name, element):
            key = (name, *element) if name in SHARED else (core, name, *element)
            fresh = ("fresh", name if name in SHARED else None, element)
            return memory.get(key, number(fresh))

        for core, i in executed(self.cores):
            act = self.cores[core][i]
            written = {}
            if act.op != "core_barrier" and act.dst != act.src:
                inputs = [
                    (p.columns, tuple(read(core, p.name, e) for e in p.elements()))
                    for p in act.reads
                ]
                exchange = (core, act.meeting) if act.meeting >= 0 else None
                place = (act.dst.rows[1] - act.dst.rows[0], act.dst.columns)
                what = number((act.op, act.engine, act.value, tuple(inputs), place, exchange))
                for position, element in enumerate(act.dst.elements()):
                    name = act.dst.name
                    key = (name, *element) if name in SHARED else (core, name, *element)
                    written[(name, *element)] = memory[key] = number((what, position))
            found[core, i] = written
        return found


def executed(cores):
    """(core, act) in the order in which nkisim runs them: a core goes on until it has to wait."""
    at, core, waiting = [0, 0], 0, None
    while any(at[c] < len(cores[c]) for c in (0, 1)):
        if at[core] == len(cores[core]):
            core = 1 - core
            continue
        act = cores[core][at[core]]
        yield core, at[core]
        at[core] += 1
        if act.meeting >= 0:
            if waiting == act.meeting:
                waiting = None
            else:
                waiting, core = act.meeting, 1 - core
