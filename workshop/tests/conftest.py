"""The tests here need no TensorFlow, and get none, as those in tests/quick."""

from tests.quick.conftest import (  # noqa: F401
    no_tensorflow_in_processes,
    pytest_configure,
)
