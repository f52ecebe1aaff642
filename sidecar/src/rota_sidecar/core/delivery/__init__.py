"""
What is read, handed to the application, judged and committed: everything between a member and its application.

Events and the time go in, actions come out, as with `rota_sidecar.core.member`; the shell performs them. Pure.
"""
