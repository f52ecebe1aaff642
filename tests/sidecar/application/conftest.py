"""Tests of Deliver run over gRPC and in frames."""

from functools import partial
from pathlib import Path

import pytest

from tests.sidecar.application import talking


@pytest.fixture(params=["grpc", "frames"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> talking.Play:
    """Run a story with a service of its own, whose application has Deliver over one of the two."""
    return partial(talking.play, tmp_path, in_frames=request.param == "frames")
