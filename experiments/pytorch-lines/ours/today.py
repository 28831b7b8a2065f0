"""Blocks of the part `today`."""

import given
import tensorflow as tf

from manygpu.scratch.splitting.program_over_ranks import Backward, Mesh, Spread
from manygpu.scratch.today.experts import exchange_rows
from ours.cases import DEVICES, case

RANKS = 2


@case("today/experts", 1)
def experts(found):
    rows, matrices, leaving = given.rows_of_experts(RANKS)
    mesh = Mesh(DEVICES, expert=RANKS)

    def spread(arrays):
        parts = []
        for rank, array in enumerate(arrays):
            with tf.device(mesh.device(rank)):
                parts.append(tf.identity(tf.constant(array)))
        return Spread(mesh, parts)

    own, experts = spread(rows), spread(matrices)
    arriving = [list(column) for column in zip(*leaving, strict=True)]
    arrived = exchange_rows(own, "expert", leaving)
    made = arrived.each(lambda rows, matrix: tf.tanh(rows @ matrix), experts)
    back = exchange_rows(made, "expert", arriving)
    grads = Backward(back, [2 * part for part in back.parts]).to([own, experts])
    names = zip(("answers", "of rows", "of experts"), (back, *grads), strict=True)
    return {f"{n}@{rank}": p for n, one in names for rank, p in enumerate(one.parts)}
