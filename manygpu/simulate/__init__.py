"""What a training step takes on a cluster that you don't have: without TensorFlow.

`works` says what is to be done, `cluster` where messages go, `steps` what a step of
each strategy is made of, `transformer` predicts a transformer's MFU and memory in
closed form, and `published` holds the measurements that it is held against. The
simulator that plays the works is built in the chapter *A simulator for plans*, and is
exported as `manygpu.scratch.simulate`.
"""
