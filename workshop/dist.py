"""Build wheel and sdist, check both, and try the wheel in an empty environment.

python -m workshop.dist [3.12]    the Python of the new environment
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from workshop.standalone import environment

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "manygpu"
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


def build(target: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it, into an empty folder; return both."""
    shutil.rmtree(target, ignore_errors=True)
    # With this environment's setuptools: the lock says which, and no network is asked.
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--no-build-isolation"]
    command += ["--python", sys.executable, "--out-dir", target, ROOT]
    subprocess.run(command, check=True)
    return next(target.glob("*.tar.gz")), next(target.glob("*.whl"))


def files_of(folder: Path) -> set[str]:
    """The package's files below a folder, code and data, but not what Python left."""
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    return {name for name in found if "__pycache__" not in name}


def try_alone(wheel: Path, python: str) -> None:
    """Install the wheel with what it declares into an empty environment, and use it.

    It was built from the sdist, so what that lacks, it lacks, too.
    """
    variables = {**os.environ, "MANYGPU_OFFLINE": "1"}
    variables.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as folder:
        inside = environment([str(wheel)], Path(folder) / "alone", python)
        ran = subprocess.run(
            [inside, "-c", TRIAL, *sorted(files_of(ROOT / PACKAGE))],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
        )
    if ran.returncode:
        sys.exit(f"{wheel.name} failed where it is alone:\n{ran.stderr}")
    print(f"{wheel.name} alone: {ran.stdout.strip()}", flush=True)


def main(python: str = sys.executable) -> None:
    """Build, check and try; stop at what is wrong."""
    sdist, wheel = build(ROOT / "dist")
    for archive in (sdist, wheel):
        print(f"{archive.stat().st_size:9,} bytes  {archive}", flush=True)
    twine = [sys.executable, "-m", "twine", "check", "--strict", sdist, wheel]
    subprocess.run(twine, check=True)
    try_alone(wheel, python)


if __name__ == "__main__":
    main(*sys.argv[1:])
