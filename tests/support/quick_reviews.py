"""
Rota's coordinator, which believes an answer to a TokenReview for two seconds instead of thirty: for tests that wait for the next one.

Run as a program by `Coordinator`.
"""

from rota_coordinator.__main__ import main
from rota_service import pod_tokens

if __name__ == "__main__":
    pod_tokens.CACHE_S = 2.0
    main()
