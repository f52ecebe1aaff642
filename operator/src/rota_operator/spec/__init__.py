"""
What a ConsumerGroup says: its fields, their defaults and bounds, and the rules between them.

`model` declares them once; `reading` makes values of a manifest, or says what is wrong with it; `crd` makes of the same
declaration what the API server checks. Called by the operator and by the local runner.
"""
