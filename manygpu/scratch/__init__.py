"""What the chapters built, exported from them: never edit it by hand."""

from manygpu.scratch.all_reduce import *  # noqa: F403
from manygpu.scratch.collectives import *  # noqa: F403
from manygpu.scratch.buckets import *  # noqa: F403
from manygpu.scratch.large_batches import *  # noqa: F403
from manygpu.scratch.many_devices import *  # noqa: F403
from manygpu.scratch.parameters import *  # noqa: F403
from manygpu.scratch.mirrored import *  # noqa: F403
from manygpu.scratch.mixed_precision import *  # noqa: F403
from manygpu.scratch.hybrid import *  # noqa: F403
from manygpu.scratch.layerwise import *  # noqa: F403
from manygpu.scratch.network import *  # noqa: F403
from manygpu.scratch.pipeline import *  # noqa: F403
from manygpu.scratch.recomputation import *  # noqa: F403
from manygpu.scratch.sharded_state import *  # noqa: F403
from manygpu.scratch.one_device import *  # noqa: F403
from manygpu.scratch.three_ways import *  # noqa: F403
