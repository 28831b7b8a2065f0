"""What `make bench` prints: whose share of whose time, and what it is held to."""

from __future__ import annotations

from manygpu.bench import ideal
from workshop import bench


def rows(printed: str) -> dict[str, list[str]]:
    """Each row's cells behind the name; names are padded to 37 letters."""
    lines = [line for line in printed.splitlines() if line[37:].strip()]
    return {line[:37].strip(): line[37:].split() for line in lines}


def test_the_measured_case_is_divided_by_each_other_one(capsys):
    times = {name: [20.0, 40.0] for name in bench.STEPS}
    times[bench.MEASURED] = [10.0, 10.0]
    bench.report(times)
    found = rows(capsys.readouterr().out)
    assert found[bench.MEASURED] == ["10.0"]
    eager = found["eager, 2 devices (the source's)"]
    assert eager == ["30.0", "0.35", "0.25,", "0.50", "<=", "0.50"]
    assert found["fit, 2 devices (Keras)"][-1] == "none"


def test_each_chain_is_divided_by_the_unsplit_one(capsys):
    times = {name: [9.0] for name in bench.CHAINS}
    bench.report(times | {bench.STEP: [30.0]})
    found = rows(capsys.readouterr().out)
    assert found["step, 1F1B"][:2] == ["9.0", "0.30"]
    assert found["step, 1F1B"][-1] == f"{1.15 * ideal(2):.2f}"
    assert found[bench.STEP] == ["30.0"]
