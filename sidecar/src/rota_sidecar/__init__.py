"""The group member: joins, heartbeats, assigns, fetches, delivers and commits for one application pod."""
