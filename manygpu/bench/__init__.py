"""Fair comparisons of training strategies, each in processes of its own.

`manygpu.trainings` has the strategies and what they train. A `case` is what one process
times. `run` times cases in turns, `serve` is what their processes do, `result` what was
found, `report` how it is shown.
"""

from manygpu.bench.case import Case as Case
from manygpu.bench.result import ratio as ratio
from manygpu.bench.run import compare as compare
from manygpu.simulate.works import whole
from manygpu.trainings.table import CHAIN_PIECES


def ideal(devices: int, micro_batches: int = CHAIN_PIECES) -> float:
    """Return the time of a pipeline of equal stages in units of the unsplit time.

    Raises TypeError or ValueError for a count that is none.
    """
    p, m = whole("devices", devices), whole("micro_batches", micro_batches)
    return (m + p - 1) / (m * p)
