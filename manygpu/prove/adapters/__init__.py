"""How a step of TensorFlow comes before the judge: a few lines for each kind."""

from manygpu.prove.adapters.engine import of_loop
from manygpu.prove.adapters.fit import of_fit
from manygpu.prove.adapters.processes import of_ring, of_workers
from manygpu.prove.adapters.variables import Variables, of_step, of_variables
from manygpu.trainings.contract import Training

__all__ = [
    "Training",
    "Variables",
    "of_fit",
    "of_loop",
    "of_ring",
    "of_step",
    "of_variables",
    "of_workers",
]
