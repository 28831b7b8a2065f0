"""Which plan, and what it costs: a rule with reasons, checked against a search.

`setting` says what is asked, `forecast` what a plan takes, `tree` chooses, `search`
tries all plans, `settings` has the grid that both are held against. `cost` and `prices`
are about money, and `pages` writes down what interactive pages replay. None of it needs
TensorFlow.
"""
