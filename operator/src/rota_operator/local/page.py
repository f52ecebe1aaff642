"""
The web page of the local runner: the shared page, with requests to scale and to reset offsets.

Without a login: it listens on loopback only. Pages of other origins cannot send the required JSON content type without a preflight.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rota_operator.local.dashboard_state import DashboardState
from rota_operator.overview.assignment import Partition
from rota_operator.overview.recording import Cursor
from rota_operator.page.documents import event_document, state_document
from rota_operator.page.http_connection import message_response
from rota_operator.page.server import Event, PageServer, PageSource, error_response
from rota_operator.resets.orders import Offsets
from rota_operator.spec.names import GroupId
from rota_operator.spec.scalars import Topic

INT64_MAX = 2**63 - 1
RESET_EXAMPLE = '{"group": "NAME", "offsets": {"TOPIC": {"0": NUMBER}}}'

# Scale a workload: its name and the number of replicas in, the error out (empty if none).
Scale = Callable[[str, int], str]
# Reset a group: its id and the offset of each partition in, the error out (empty if none).
Reset = Callable[[str, Offsets], Awaitable[str]]


class Page(PageServer):
    """The page with its requests for changes; thread-confined to one event loop."""

    def __init__(self, dashboard: DashboardState, scale: Scale, reset: Reset) -> None:
        changes = {"/api/scale": self._scale_workload, "/api/reset": self._reset_offsets}
        super().__init__(self._everything, changes)
        self._source = DashboardSource(dashboard)
        self._scale = scale
        self._reset = reset

    async def _everything(self, request: web.Request) -> PageSource:
        return self._source

    async def _scale_workload(self, request: web.Request) -> web.StreamResponse:
        body, wrong = await parse_json(request)
        if wrong is not None:
            return wrong
        problem = scale_error(body) or self._scale(body["workload"], body["replicas"])
        return error_response(problem, 400) or message_response(200, "done")

    async def _reset_offsets(self, request: web.Request) -> web.StreamResponse:
        body, wrong = await parse_json(request)
        if wrong is not None:
            return wrong
        if (offsets := parse_offsets(body)) is None:
            return message_response(400, f"invalid reset; expected {RESET_EXAMPLE}")
        return error_response(await self._reset(body["group"], offsets), 409) or message_response(200, "done")


class DashboardSource:
    """Groups and workloads of the runner."""

    def __init__(self, dashboard: DashboardState) -> None:
        self._dashboard = dashboard

    async def state(self) -> str:
        """Return the state as JSON."""
        return state_document(self._dashboard.view())

    async def event(self, cursors: Mapping[str, Cursor]) -> Event:
        """Return the state with what was recorded after the cursors."""
        recorded = self._dashboard.recorded_since(cursors)
        document = event_document(self._dashboard.view(), recorded)
        return Event(document, {each.group_id: each.cursor for each in recorded})

    async def wait_for_change(self) -> None:
        """Return when the next event is due."""
        await self._dashboard.wait_for_change()


async def parse_json(request: web.Request) -> tuple[Any, web.Response | None]:
    """Return the parsed body, or the error response."""
    if request.content_type != "application/json":
        return None, message_response(415, "Content-Type must be application/json")
    try:
        return json.loads(await request.read()), None
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else error
        return None, message_response(400, f"invalid JSON: {what}")


def parse_offsets(body: object) -> Offsets | None:
    """Return the offsets of a reset request; None if it is invalid."""
    try:
        return ResetRequest.model_validate(body).by_partition
    except ValidationError:
        return None


# Each number has one spelling.
PartitionNumber = Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,8})$")]
Offset = Annotated[int, Field(ge=0, le=INT64_MAX)]


class ResetRequest(BaseModel):
    """Body of `POST /api/reset`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    group: GroupId
    # By topic and partition.
    offsets: dict[Topic, dict[PartitionNumber, Offset]]

    @property
    def by_partition(self) -> Offsets | None:
        """Offsets by partition; None if there are none."""
        found = {
            Partition(topic, int(number)): offset
            for topic, offsets in self.offsets.items()
            for number, offset in offsets.items()
        }
        return found or None


def scale_error(body: object) -> str:
    """Validate the body of `POST /api/scale`; return the error, or an empty string."""
    if not isinstance(body, dict) or body.keys() != {"workload", "replicas"}:
        return 'invalid request; expected {"workload": "NAME", "replicas": NUMBER}'
    if not isinstance(body["workload"], str):
        return "workload must be a string"
    if not isinstance(body["replicas"], int) or isinstance(body["replicas"], bool):
        return "replicas must be an integer"
    return ""
