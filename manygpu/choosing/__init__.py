"""Which plan, and what it costs.

`question` says what is asked and answered, `forecast` what a plan takes, `search` tries
all plans and says why one is the best, `presets` has a grid of settings. `cost` and
`prices` are about money. `measured` asks after what `manygpu bench` found. `formulas`
are what interactive pages compute. None of it needs TensorFlow.
"""
