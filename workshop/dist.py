"""Build wheel and sdist, check both, and try the wheel in an empty environment.

python -m workshop.dist [3.12]    the Python of the new environment
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from workshop.standalone import environment

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "manygpu"
MOST_BYTES = 8_000_000  # the shipped images are 4.4 MB of it
NEVER_READ = ("__pycache__",)

TRIAL = """
import manygpu.scratch as s, manygpu, tensorflow as tf
assert "d2l" not in __import__("sys").modules
devices = manygpu.devices(2, quiet=True)
replicas = [s.get_params(s.init_params(), d) for d in devices]
X, y = tf.zeros((6, 28, 28, 1)), tf.range(6)
loss = s.train_batch(X, y, replicas, devices, 0.1)
from manygpu import data, records
from manygpu.widgets import stepper
data.load("shipped", quiet=True), records.load("source-experiment")
assert all((stepper.STATIC / f).is_file() for f in ("stepper.js", "pipeline.css"))
print(f"manygpu {manygpu.__version__}, TensorFlow {tf.__version__}: ", end="")
print(f"a step on {len(devices)} devices, loss {float(loss):.3f}")
"""


def run(*command: str | Path, **options) -> None:
    """Run a command; stop everything if it fails."""
    subprocess.run([*map(str, command)], check=True, **options)


def build(target: Path) -> list[Path]:
    """Build the sdist, and the wheel from it, into an empty folder."""
    shutil.rmtree(target, ignore_errors=True)
    # With this environment's setuptools: the lock says which, and no network is asked.
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--no-build-isolation"]
    run(*command, "--python", sys.executable, "--out-dir", target, ROOT)
    return sorted([*target.glob("*.tar.gz"), *target.glob("*.whl")])


def contents(archive: Path) -> set[str]:
    """The paths of the package's files in a wheel or an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            names = opened.namelist()
    else:
        with tarfile.open(archive) as opened:
            names = [n.partition("/")[2] for n in opened.getnames()]
    return {name for name in names if name.startswith(f"{PACKAGE}/")}


def source_files(root: Path = ROOT) -> set[str]:
    """The paths of all files of the package, code and data, as they lie here."""
    found = [p for p in (root / PACKAGE).rglob("*") if p.is_file()]
    found = [p for p in found if not set(p.parts) & set(NEVER_READ)]
    return {p.relative_to(root).as_posix() for p in found}


def problems(archive: Path, root: Path = ROOT) -> list[str]:
    """What is wrong with a wheel or an sdist, a sentence each."""
    wrong = []
    missing = sorted(source_files(root) - contents(archive))
    if missing:
        wrong.append(f"{archive.name} lacks {', '.join(missing)}")
    size = archive.stat().st_size
    if size > MOST_BYTES:
        wrong.append(f"{archive.name} has {size:,} bytes, {MOST_BYTES:,} at most")
    return wrong


def try_alone(wheel: Path, python: str) -> None:
    """Install the wheel with what it declares into an empty environment, and use it."""
    with tempfile.TemporaryDirectory() as folder:
        inside = environment([str(wheel)], Path(folder) / "alone", python)
        variables = {**os.environ, "MANYGPU_OFFLINE": "1"}
        variables.pop("PYTHONPATH", None)
        empty = Path(folder) / "empty"
        empty.mkdir()
        for code in ("import manygpu.scratch", TRIAL):
            command = [str(inside), "-c", code]
            ran = subprocess.run(
                command, cwd=empty, env=variables, capture_output=True, text=True
            )
            if ran.returncode:
                sys.exit(f"{code}\nfailed where the wheel is alone:\n{ran.stderr}")
            said = ran.stdout.strip() or f"{code}: done"
            print(f"{wheel.name} alone: {said}", flush=True)


def main(words: list[str]) -> int:
    """Build, check and try; return the exit status."""
    python, *_ = [*words, sys.executable]
    archives = build(ROOT / "dist")
    for archive in archives:
        print(f"{archive.stat().st_size:9,} bytes  {archive}", flush=True)
    wrong = [sentence for archive in archives for sentence in problems(archive)]
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    run(sys.executable, "-m", "twine", "check", "--strict", *archives)
    (wheel,) = (a for a in archives if a.suffix == ".whl")
    try_alone(wheel, python)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as failed:
        words = [str(word).splitlines()[0] for word in failed.cmd if str(word).strip()]
        sys.exit(f"failed: {' '.join(words)}")
