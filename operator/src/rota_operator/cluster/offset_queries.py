"""
Sends a query for offsets to a sidecar page by page, because an answer of Fleet is bounded and a group is not.

Called by `offset_orders` for the lag of partitions without an owner, and by `reset_lookups` for offset resets.
"""

from rota_operator.cluster.settings_orders import Fleet
from rota_operator.fleet.principal import SidecarRef
from rota_proto.fleet.v1 import fleet_pb2 as pb

# A sidecar answers at most this many partitions at once.
PAGE_SIZE = 5_000
# 200,000 partitions, as in the plan of an offset reset.
PAGES_MAX = 40
# For each page; longer than the sidecar's own limit of 20 s, whose error says more.
ANSWER_S = 25.0


async def query_offsets(fleet: Fleet, sidecar: SidecarRef, query: pb.QueryOffsets) -> pb.OrderAnswer:
    """
    Send a query and return one answer for all of its pages.

    If a page fails, its answer is the result. A sidecar that knows no pages refuses what is too much for one answer.
    """
    request = pb.QueryOffsets(page_size=PAGE_SIZE)
    request.MergeFrom(query)
    whole = pb.OrderAnswer()
    for _ in range(PAGES_MAX):
        page = await fleet.order(sidecar, pb.SidecarOrder(query_offsets=request), ANSWER_S)
        if page.error:
            return page
        whole.MergeFrom(page)
        if not page.next_page_token:
            whole.ClearField("next_page_token")
            return whole
        request.page_token = page.next_page_token
    return pb.OrderAnswer(
        order_id=whole.order_id,
        error=f"the group has more than {PAGE_SIZE * PAGES_MAX} partitions; subscribe to fewer topics",
    )
