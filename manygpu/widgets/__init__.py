"""Figures that a page can be asked: a stepper, the pipeline explorer, calculators."""
