"""How far forecasts have been from measured steps."""

from manygpu.choosing.question import Setting


def likely(setting: Setting) -> tuple[float, float]:
    return 0.8, 1.25
