"""
Who gets which partition: pure functions from what the members of a group say to what each of them is given.

Called by the leader of a group; `model` is what an assignor of one's own is written against.
"""
