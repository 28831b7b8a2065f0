"""What all tests have: no property fails because a machine is busy, or by chance.

A gate answers for a change, so it draws the same cases each time. MANYGPU_DRAWS=new
draws others, as the workflow does on Mondays: what these find is nobody's change.
"""

import os

from hypothesis import settings

settings.register_profile("gate", deadline=None, derandomize=True)
settings.register_profile("new", deadline=None)
settings.load_profile(os.environ.get("MANYGPU_DRAWS") or "gate")
