"""
Number of replicas of one group: what it is to be and why, and how replicas are drained before they are removed.

A core. `measure` makes a sample of the group's view and reports at each polling interval; `History.with_sample` keeps it;
`decide(history, spec)` sums the history up as `Inputs` and judges them. A shell applies the decision: more replicas at once, fewer by the
events and actions of `scale_down`, and it records the change in the history. `decision_log` keeps the last decisions for people.
"""
