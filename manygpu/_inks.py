"""Colours and what they mean, for figures and for what needs no matplotlib."""

from __future__ import annotations

# Okabe & Ito, "Color Universal Design" (2008), without black and yellow, which
# vanish on a dark and on a light page.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
BLUE, ORANGE, GREEN, PINK, SKY, VERMILLION = COLORS
GREY = "#6b6f78"
# What a colour means, in the whole book. A figure's hues tell devices apart, or kinds
# of work, or kinds of memory, or strategies, or what was measured from what was
# predicted: one of the five, and its legend says which. Numbers are for devices, and
# for lines that mean none of these.
MEANINGS = {
    "forward": BLUE,
    "backward": ORANGE,
    "weights": GREEN,  # their gradients, and their update
    "communication": PINK,
    "idle": GREY,
    "measured": SKY,
    "predicted": VERMILLION,
}
# What lies in memory: forward leaves activations, backward leaves gradients, the update
# changes parameters.
MEMORY = {
    "activations": BLUE,
    "gradients": ORANGE,
    "parameters": GREEN,
    "optimizer": PINK,  # its state
    "copy": SKY,  # of parameters: in other numbers, or gathered for a while
}
# How a training is split; on a mesh, the axis of that name.
STRATEGIES = {
    "data": ORANGE,
    "layerwise": GREEN,
    "pipeline": BLUE,
    "network": SKY,  # a pipeline without micro-batches
    "sharded": PINK,  # state
}
# Orange and sky vanish on a white page, so lines and edges are drawn in darker ones,
# with a contrast of 3 to 1 on white and on black. A dark page may set the variables,
# and those of fills' edges, which end in "-rim".
EDGES = {
    ORANGE: "var(--manygpu-orange-edge, #9a6700)",
    SKY: "var(--manygpu-sky-edge, #2f8fd0)",
}
