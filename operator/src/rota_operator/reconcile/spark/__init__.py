"""
Decides about the SparkApplications of a ConsumerGroup: what each is, how many there are, and which one changes next.

`template` says what is wrong with the group's template, `rendering` makes an application from it, `kinds` translates the states of
both kinds of SparkApplications, `steps` decides the next step of scaling and of a rollout. `reconcile.plan` puts them together.
"""
