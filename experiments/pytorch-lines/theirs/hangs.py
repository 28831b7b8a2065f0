"""The commands of the page `beyond/step-hangs`, on a job that hangs."""

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

from ranks import case, free_port

# Rank 1 doesn't come to the second all-reduce. On GPUs, the watchdog of NCCL writes
# the files. Gloo has the recorder, but no watchdog, so that the script writes them,
# and names the ranks of the group, as NCCL's files do.
TRAIN = """
import datetime, os, pickle, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
dist.all_reduce(torch.ones(3))
try:
    dist.all_reduce(torch.ones(3)) if rank == 0 else time.sleep(6)
except RuntimeError as error:
    print("the time-out:", error)
seen = pickle.loads(_dump_fr_trace())
group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
seen["pg_config"] = {"0": group}
with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank), "wb") as file:
    pickle.dump(seen, file)
os._exit(0)
"""
LAUNCH = """export TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_TEMP_FILE=job/rank_
torchrun --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=HOST:29400 train.py
"""


def said_by(commands: str) -> str:
    """Run commands in a folder that has a program which hangs; return their output."""
    Path("train.py").write_text(TRAIN, encoding="utf-8")
    Path("job").mkdir(exist_ok=True)
    commands = commands.replace("HOST:29400", f"127.0.0.1:{free_port()}")
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    options = {"capture_output": True, "text": True, "env": env, "timeout": 120}
    done = subprocess.run(["bash", "-ec", commands], check=False, **options)
    if done.returncode:
        raise RuntimeError(f"the commands failed: {done.stderr[-300:]}")
    return done.stdout + done.stderr


@case(
    "beyond/step-hangs", 1, "how many collectives each rank's file has (gloo)", ranks=0,
    tolerance=0,
    changes={
        "--nnodes=2 --nproc-per-node=8": "--nnodes=1 --nproc-per-node=2",
        "/shared/job": "job",
    },
)  # fmt: skip
def recorder(block, rank, ranks):
    said_by(block.text)
    files = [pickle.loads(Path(f"job/rank_{r}").read_bytes()) for r in range(2)]
    return {"collectives": [len(seen["entries"]) for seen in files]}


@case(
    "beyond/step-hangs", 2, "the missing rank that it names (gloo)", ranks=0,
    tolerance=0, changes={"/shared/job": "job"},
)  # fmt: skip
def analysis(block, rank, ranks):
    said_by(LAUNCH)
    said = said_by(block.text)
    [missing] = re.findall(r"missing ranks: \{(.*)\}", said)
    [number] = re.findall(r"sequence number: (\d+)", said)
    return {"missing": [int(r) for r in missing.split(",")], "number": int(number)}
