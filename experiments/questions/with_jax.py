"""Run the lines of JAX that answer two questions, and what the pages say of them.

JAX isn't in the lock, so give it an environment of its own:

    .venv/bin/python -m uv run --no-project --python 3.11 --with jax==0.10.2 \
        python experiments/questions/with_jax.py
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "book" / "start" / "how-clusters-run.md"
ADDRESS, PROCESS = '"10.0.0.1:1234"', "2, 0)"  # as the page has them
SENT = "all-gather", "all-reduce", "all-to-all", "collective-permute"


def lines_of_the_page() -> str:
    """Return the page's block of JAX."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.S)
    (found,) = [block for block in blocks if block.startswith("jax.distributed")]
    return found


def one_host(process: int, processes: int, address: str) -> None:
    """Run the page's lines in one of some processes; compare with one device."""
    os.environ["JAX_NUM_CPU_DEVICES"] = str(4 // processes)
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    random = np.random.default_rng(0)
    X, y = random.normal(size=(8, 3)), random.normal(size=8)
    params = np.ones(3, np.float32)
    right = 2 * X.T @ (X @ params - y) / len(y)
    part = slice(process * 8 // processes, (process + 1) * 8 // processes)

    def loss(params: jax.Array, X: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((X @ params - y) ** 2)

    code = lines_of_the_page()
    if processes == 1:
        code = code.partition("\n")[2]
    else:
        code = code.replace(ADDRESS, repr(address))
        code = code.replace(PROCESS, f"{processes}, {process})")
    names = {"jax": jax, "AxisType": AxisType, "NamedSharding": NamedSharding}
    names |= {"P": PartitionSpec, "loss": loss, "params": params}
    names |= {"my_X": X[part].astype("f4"), "my_y": y[part].astype("f4")}
    exec(code, names)
    difference = float(np.abs(np.asarray(names["grads"]) - right).max())
    assert difference < 1e-5, difference
    print(
        f"process {process} of {processes}: {len(jax.devices())} devices, "
        f"{len(jax.local_devices())} of its own; {names['X'].shape[0]} rows, "
        f"{len(X[part])} read; the gradient differs by {difference:.1e}"
    )


def dropout(partitionable: bool) -> None:
    """Say what one dropout mask sends under jit, and whose mask a rank draws."""
    os.environ["JAX_NUM_CPU_DEVICES"] = "2"
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    jax.config.update("jax_threefry_partitionable", partitionable)
    mesh = jax.make_mesh((2,), ("k",), axis_types=(AxisType.Auto,))
    rows, copied = NamedSharding(mesh, P("k")), NamedSharding(mesh, P())
    key = jax.device_put(jax.random.key(0), copied)
    x = jax.device_put(np.ones((1024, 512), np.float32), rows)

    def drop(key: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0)

    def with_own_key(key: jax.Array, x: jax.Array) -> jax.Array:
        return drop(jax.random.fold_in(key, jax.lax.axis_index("k")), x)

    specs = {"mesh": mesh, "in_specs": (P(), P("k")), "out_specs": P("k")}
    programs = {
        "jit": jax.jit(drop, out_shardings=rows),
        "shard_map": jax.jit(jax.shard_map(drop, **specs)),
        "shard_map, own key": jax.jit(jax.shard_map(with_own_key, **specs)),
    }
    for name, program in programs.items():
        text = program.lower(key, x).compile().as_text()
        sent = [kind for kind in SENT if kind in text] or ["nothing"]
        one, two = np.split(np.asarray(program(key, x)), 2)
        masks = "equal" if np.array_equal(one, two) else "different"
        print(
            f"jax_threefry_partitionable={partitionable}, {name}: sends "
            f"{', '.join(sent)}; the two ranks' masks are {masks}"
        )


def start(*words: object) -> subprocess.Popen:
    """Start this script in a process of its own, on CPUs: JAX is set up only once."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)


def main() -> None:
    """Run both questions' lines, each in new processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    together = [
        [("host", 0, 1, address)],
        [("host", 0, 2, address), ("host", 1, 2, address)],
        [("dropout", 0)],
        [("dropout", 1)],
    ]
    for group in together:
        running = [start(*words) for words in group]
        codes = [process.wait(timeout=300) for process in running]
        if any(codes):
            sys.exit(f"{group} failed: run it with its words to see why")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["host", process, processes, address]:
            one_host(int(process), int(processes), address)
        case ["dropout", partitionable]:
            dropout(partitionable == "1")
        case _:
            main()
