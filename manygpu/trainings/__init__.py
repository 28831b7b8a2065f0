"""Every training of the book in one form: `manygpu bench` times it, `prove` judges it.

`table` has a row per strategy and is read without TensorFlow; a row names the function
that puts the strategy to work on a `task.Task`. That function returns a
`contract.Training`. The functions are in `copies` (a batch is split), `parts` (the
model is split), `engines` (TensorFlow's own) and `meetings` (members of a ring, a
server, local steps). `models` has what is trained.
"""
