"""Which plan, and what it costs: a rule with reasons, checked against a search.

`question` says what is asked and answered, `forecast` what a plan takes, `tree`
chooses, `search` tries all plans, `presets` has the grid that both are held against.
`cost` and `prices` are about money. `measured` asks after what `manygpu bench` found.
`answers` and `formulas` are what interactive pages look up and compute. None of it
needs TensorFlow.
"""
