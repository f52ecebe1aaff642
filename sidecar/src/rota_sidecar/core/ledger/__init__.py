"""Delivery state of one partition: records fetched, in flight and done, and the point to commit. Without IO or clocks."""
