"""Is my step right? A judge of parallel steps, that says what broke.

`judge` tries a `Subject` on small cases and returns a `Verdict`. The core needs NumPy
only; `manygpu.prove.adapters` brings steps of TensorFlow and Keras before it.
"""

from manygpu.prove.judge import judge
from manygpu.prove.subject import Case, Subject
from manygpu.prove.verdict import Finding, Verdict
from manygpu.trainings.contract import Places, Training

__all__ = ["Case", "Finding", "Places", "Subject", "Training", "Verdict", "judge"]
