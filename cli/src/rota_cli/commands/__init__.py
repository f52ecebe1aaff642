"""The commands: what each says, asks and shows. They speak to the port of `cluster`, never to an engine."""
