"""The book's package can't be imported here by accident.

The environment has it in place: a finder offers what lies in the repository. With this
folder in PYTHONPATH, a process begins without that finder, and so do the processes that
it starts. A file that runs alone then has what it carries, and nothing else.
"""

import sys

sys.meta_path[:] = [f for f in sys.meta_path if "manygpu" not in f.__module__]
