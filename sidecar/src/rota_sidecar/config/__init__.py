"""
Configuration of the sidecar: command line, environment and group settings become one frozen `SidecarConfig`.

`flags` declares every flag once; `arguments` and `settings` read the sources; `loading` combines and validates them.
Called by `__main__` when the sidecar starts, and by `fleet.reconfigure` when Fleet sends other settings. No other folder
imports argparse.
"""
