"""Each case in processes of its own, one per rank, with gloo over this machine."""

import multiprocessing
import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

import numpy as np
from blocks import Block

CASES: dict[tuple[str, int], "Case"] = {}
PATIENCE_S = 150
# Processes that were forked can't start torch.compile's own processes.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


class NeedsGPUError(Exception):
    """The block doesn't run on CPUs, however it is changed."""


class Case(NamedTuple):
    """How a block is run, and what is compared.

    work: `work(block, rank, ranks)` returns arrays by name. ranks: how many processes;
    0 means one, without a process group. changes: of the text, so that it runs on CPUs.
    """

    work: Callable
    compared: str
    ranks: int
    tolerance: float
    changes: dict[str, str]
    starts: bool


def case(page: str, number: int, compared: str, ranks: int = 2, **options) -> Callable:
    """Note a function as the case of a page's block."""
    tolerance, changes = options.get("tolerance", 1e-10), options.get("changes", {})
    starts = options.get("starts", ranks > 0)

    def note(work: Callable) -> Callable:
        CASES[page, number] = Case(work, compared, ranks, tolerance, changes, starts)
        return work

    return note


def free_port() -> int:
    """Return a port of this machine that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def work_as(rank: int, ranks: int, of: Case, block: Block, place: str, port: int):
    """Do the work of one rank; return its arrays."""
    import torch

    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank)}
    own |= {"WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
    os.environ.update(own | {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"})
    os.chdir(place)  # what a block writes goes away with it
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(rank)  # as different as processes without a seed are
    if of.starts:
        store = torch.distributed.FileStore(str(Path(place) / "store"), ranks)
        options = {"store": store, "rank": rank, "world_size": ranks}
        torch.distributed.init_process_group("gloo", **options)
    found = of.work(block.on_cpu(of.changes), rank, ranks)
    if torch.distributed.is_initialized() and ranks > 1:
        torch.distributed.barrier()  # no rank leaves while a neighbour still asks
    return {name: np.asarray(value) for name, value in found.items()}


def member(connection: Connection, *of: object) -> None:
    """Send a rank's arrays, or its error, to the process that started it."""
    try:
        answer = work_as(*of)
    except BaseException as error:
        traceback.print_exc(file=sys.stderr)
        answer = f"{type(error).__name__}: {error}"
    connection.send(answer)
    connection.close()
    sys.stderr.flush()
    os._exit(0)  # threads of gloo may still wait for a rank that failed


def run(of: Case, block: Block) -> list[dict] | str:
    """Run a case; return the arrays of each rank, or why there are none."""
    ranks, fork = max(of.ranks, 1), multiprocessing.get_context("fork")
    started, port = [], free_port()
    with tempfile.TemporaryDirectory() as place:
        for rank in range(ranks):
            ours, theirs = fork.Pipe(duplex=False)
            of_rank = (theirs, rank, ranks, of, block, place, port)
            process = fork.Process(target=member, args=of_rank)
            process.start()
            theirs.close()
            started.append((process, ours))
        found = answers([connection for _, connection in started])
        for process, _ in started:
            process.join(1)
            if process.is_alive():
                process.kill()
                process.join()
    return found


def answers(connections: list[Connection]) -> list[dict] | str:
    """Return what all ranks have sent, or the first error."""
    found, end = {}, time.monotonic() + PATIENCE_S
    while len(found) < len(connections):
        waiting = [c for i, c in enumerate(connections) if i not in found]
        ready = wait(waiting, max(0.0, end - time.monotonic()))
        if not ready:
            return f"no answer after {PATIENCE_S} s"
        for connection in ready:
            try:
                answer = connection.recv()
            except EOFError:
                return "a rank ended without an answer"
            if isinstance(answer, str):
                return answer
            found[connections.index(connection)] = answer
    return [found[rank] for rank in range(len(connections))]
