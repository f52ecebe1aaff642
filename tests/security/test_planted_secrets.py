"""The search for planted secrets finds each form in which a secret may be written, and nothing else."""

import base64
import json
from urllib.parse import quote

import pytest

from tests.cluster.planted import Finding, Output, find, lines_of, planted, without_variables

SECRET = 'p/a+s s"w:o@r%d-of-orders'


@pytest.mark.parametrize(
    "text",
    [
        f"login with {SECRET} failed",
        f"postgresql://rota:{quote(SECRET, safe='')}@server/rota",
        json.dumps({"password": SECRET}),
        *(
            base64.b64encode(f"{prefix}{SECRET}, and more".encode()).decode()
            for prefix in ("", "a", "ab", "abc")
        ),
    ],
)
def test_each_form_is_found(text: str) -> None:
    outputs = [Output("log", "shop/orders-0/app", text), Output("event", "shop/other", "nothing")]
    assert find({"password": SECRET}, outputs) == [Finding("log", "shop/orders-0/app", "password")]


def test_other_secrets_are_not_found() -> None:
    assert find({"password": planted()}, [Output("log", "shop/orders-0/app", planted())]) == []


def test_a_line_of_a_key_is_enough() -> None:
    body = ["A" * 63 + str(number) for number in range(3)]
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----"])
    [found] = find(lines_of("key", key), [Output("log", "pod", f"cannot parse {body[1]}")])
    assert found.secret == "key, line 2"


def test_variables_of_applications_are_left_out_and_those_of_sidecars_are_not() -> None:
    sidecar = {"name": "rota-sidecar", "env": [{"name": "a", "value": "b"}]}
    app = {"name": "app", "env": [{"name": "KEY", "value": "its own"}]}
    workload = {"spec": {"template": {"spec": {"initContainers": [sidecar], "containers": [app]}}}}
    without_variables(workload)
    assert workload == {
        "spec": {"template": {"spec": {"initContainers": [sidecar], "containers": [{"name": "app"}]}}}
    }
