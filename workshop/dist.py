"""Build wheel and sdist, check both, and try the wheel in an empty environment.

python -m workshop.dist [3.12]    the Python of the new environment
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from workshop.pages import ROOT
from workshop.standalone import alone

TRIAL = """
import sys
from importlib.resources import files
import manygpu.scratch as s, manygpu, tensorflow as tf
assert "d2l" not in sys.modules
devices = manygpu.devices(2, quiet=True)
replicas = [s.get_params(s.init_params(), d) for d in devices]
X, y = tf.zeros((6, 28, 28, 1)), tf.range(6)
loss = s.train_batch(X, y, replicas, devices, 0.1)
from manygpu import data, records
data.load("shipped", quiet=True), records.load("source-experiment")
lacks = [n for n in sys.argv[1:] if not (files("manygpu") / n).is_file()]
assert not lacks, f"it lacks {lacks}"
print(f"manygpu {manygpu.__version__}, TensorFlow {tf.__version__}: ", end="")
print(f"a step on {len(devices)} devices, loss {float(loss):.3f}")
"""


def answers_in(archive: Path) -> list[str]:
    """What a wheel or an sdist holds of solutions or tests."""
    if archive.suffix == ".whl":
        names = zipfile.ZipFile(archive).namelist()
    elif archive.suffix == ".gz":
        with tarfile.open(archive) as packed:
            names = packed.getnames()
    else:
        return []
    return [name for name in names if {"solutions", "tests"} & {*name.split("/")[:2]}]


def main(python: str = sys.executable) -> None:
    """Build, check and try; stop at what is wrong."""
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    # With this environment's setuptools: the lock says which, and no network is asked.
    build = [sys.executable, "-m", "uv", "build", "--quiet", "--no-build-isolation"]
    build += ["--python", sys.executable, "--out-dir", target, ROOT]
    subprocess.run(build, check=True)
    archives = sorted(
        target.glob("manygpu-*")
    )  # the wheel, and the sdist that it is from
    for archive in archives:
        print(f"{archive.stat().st_size:9,} bytes  {archive}", flush=True)
    beside = [name for archive in archives for name in answers_in(archive)]
    if beside:  # they are for teachers, who have a clone
        sys.exit(f"an archive must hold no answers, got {beside[:5]}")
    twine = [sys.executable, "-m", "twine", "check", "--strict", *archives]
    subprocess.run(twine, check=True)
    files = [p for p in (ROOT / "manygpu").rglob("*.*") if p.suffix != ".pyc"]
    names = [p.relative_to(ROOT / "manygpu").as_posix() for p in files]
    trial = [*alone(python, "--with", archives[0]), "python", "-c", TRIAL, *names]
    given = {**os.environ, "MANYGPU_OFFLINE": "1"}
    given.pop("PYTHONPATH", None)
    subprocess.run(trial, cwd=target, env=given, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
