"""
Certificates of Rota's servers without cert-manager: `python -m rota_operator certificates`, a Job of the chart.

`job` reads the Secrets, `rotation` decides, `openssl` issues, and `job` writes the Secrets back. Pods that mount them wait for the
first run; servers reload what a later run has written.
"""
