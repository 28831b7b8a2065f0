"""One TensorFlow with eight logical devices for all unit tests, and no network."""

import os
import subprocess
from collections.abc import Callable

import pytest


def only_hands_out(config: pytest.Config) -> bool:
    """Whether this process runs no test: its workers, of pytest-xdist, do."""
    workers = config.getoption("dist", "no") != "no" and config.getoption("tx", None)
    return bool(workers) and not hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    """Start TensorFlow, before any test's file is imported, where tests run."""
    os.environ["MANYGPU_DEVICES"] = "8"
    os.environ["MANYGPU_OFFLINE"] = "1"
    os.environ.pop("MANYGPU_DATA", None)
    os.environ.pop("MANYGPU_INTER_OP", None)
    if only_hands_out(config):
        return
    import manygpu

    manygpu.devices(8, quiet=True)


@pytest.fixture(autouse=True)
def no_figures_left():
    """Each test starts without the figures of the one before."""
    yield
    from matplotlib import pyplot as plt

    plt.close("all")


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess]:
    """Run a piece of Python in a new process, where TensorFlow has not started.

    `run_python(code, MANYGPU_DEVICES="3")` sets variables; None unsets one.
    """
    from tests.unit import fresh

    return fresh.run
