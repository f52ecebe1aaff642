"""The delivery state of one partition: records read, in flight and done; what to commit. Pure, without IO or clocks."""
