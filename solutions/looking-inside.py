"""The book's answers to exercises of looking-inside."""

import math


def my_hidden(computing, sending):
    """Seconds as sets: what is in both, and in each once."""

    def under_way(spans):
        return {t for start, end in spans for t in range(start, end)}

    return len(under_way(computing) & under_way(sending))


def my_gain(work, seconds):
    """Only the slowest device's work changes: it becomes the mean."""
    return seconds / (seconds - max(work) + sum(work) / len(work))


def my_speedup(many, t_many, few, t_few, devices):
    """Two times give the line; its fixed part is paid by each device."""
    fixed = max(0, t_many - (t_many - t_few) / (many - few) * many)
    return t_many / (fixed + (t_many - fixed) / devices)


def my_diagnosis(readings):
    """Nothing is above or below nan, so ask for it first."""
    unclear = [name for name, (value, _) in readings.items() if math.isnan(value)]
    over = [name for name, (value, limit) in readings.items() if value > limit]
    counts = [name for name in over if name in ("traces", "calls")]
    shares = [name for name in over if name not in counts]
    shares.sort(key=lambda name: readings[name][0], reverse=True)
    return counts + shares + unclear
