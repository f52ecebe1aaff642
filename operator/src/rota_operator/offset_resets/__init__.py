"""
Performs the tasks of offset resets for the shells of a cluster and of a laptop.

`planning` makes the plan or reads that of the dry run, `execution` suspends the members, sets the offsets, reads them back and resumes.
Both work on a `ResetGroup`, which a shell implements, and look up offsets at an `OffsetSource`. What comes next decides the core
`rota_operator.resets`.
"""
