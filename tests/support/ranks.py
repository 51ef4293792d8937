"""Ranks: processes on this machine that run a function together, over gloo and loopback only.

Every wait is bounded, and what is started is ended, by its own id.
"""

import multiprocessing
import os
import socket
import time
import traceback
from pathlib import Path

from yardstick import limit_s

SPAWN = multiprocessing.get_context("spawn")
START_S = 120
TASK_S = 120
END_S = 10


class RankFailedError(Exception):
    """What a rank raised, as text."""


class Ranks:
    """So many processes with one group, and a group for each smaller number of them.

    The group's store is a file, or, as launchers have it, a server in the process of rank 0.
    """

    def __init__(self, count, folder, *, is_served=False):
        self.count = count
        pipes = [SPAWN.Pipe() for _ in range(count)]
        self._ends = [end for end, _ in pipes]
        self.processes = [
            SPAWN.Process(
                target=_serve, args=(rank, count, str(folder), is_served, far), daemon=True
            )
            for rank, (_, far) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()
        for rank in range(count):
            self._answer(rank, time.monotonic() + limit_s(START_S))

    def run(self, ranks, function, *args, seconds=TASK_S):
        """What function(group, rank, *args) returns on each of the first `ranks` ranks."""
        self.send(ranks, function, *args)
        until = time.monotonic() + limit_s(seconds)
        return [self._answer(rank, until) for rank in range(ranks)]

    def send(self, ranks, function, *args):
        for rank in range(ranks):
            self._ends[rank].send((ranks, function, args))

    def answers(self, some, seconds):
        """(worked, value or text) of some ranks."""
        until = time.monotonic() + limit_s(seconds)
        return [self._answer(rank, until, raises=False) for rank in some]

    def _answer(self, rank, until, raises=True):
        if not self._ends[rank].poll(max(0, until - time.monotonic())):
            raise TimeoutError(f"rank {rank} did not answer in time")
        worked, value = self._ends[rank].recv()
        if raises and not worked:
            raise RankFailedError(f"rank {rank}: {value}")
        return value if raises else (worked, value)

    def kill(self, rank):
        self.processes[rank].kill()
        self.processes[rank].join(END_S)

    def end(self):
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join(END_S)


def _served(rank, folder):
    """A server of rank 0, at loopback alone; its number is left in a file."""
    from torch.distributed import TCPStore

    path = Path(folder) / "port"
    if rank == 0:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        handle = listening.detach()
        options = {"master_listen_fd": handle, "wait_for_workers": False, "use_libuv": False}
        store = TCPStore("127.0.0.1", port, is_master=True, **options)
        path.with_suffix(".made").write_text(str(port))
        path.with_suffix(".made").rename(path)
        return store
    until = time.monotonic() + limit_s(START_S)
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    return TCPStore("127.0.0.1", int(path.read_text()), is_master=False, wait_for_workers=False)


def _serve(rank, count, folder, is_served, pipe):
    """Run what is sent until the parent is gone."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = _served(rank, folder) if is_served else None
    store = store or dist.FileStore(str(Path(folder) / "store"), count)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count)
    groups = {n: dist.new_group(list(range(n))) for n in range(1, count)}
    groups[count] = dist.group.WORLD
    pipe.send((True, None))
    while True:
        try:
            ranks, function, args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, function(groups[ranks], rank, *args)))
        except Exception as failure:  # noqa: BLE001 (all of it is the parent's to judge)
            lines = traceback.format_exception(failure)
            pipe.send((False, f"{type(failure).__name__}: {failure}\n{''.join(lines)}"))
