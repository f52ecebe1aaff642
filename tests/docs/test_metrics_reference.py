"""The reference of metrics has every metric that a process exports; what it cannot describe is refused."""

from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily

from scripts.generate_metrics_reference import PAGE, Documented, Refused, documented, parts, unlisted, written
from tests.support.documented_metrics import labels_by_name, undocumented
from tests.support.tree import REPO


def family(meaning: str, *values: float) -> GaugeMetricFamily:
    found = GaugeMetricFamily("rota_answers", meaning, labels=["question"])
    for value in values:
        found.add_metric(["life"], value)
    return found


def test_the_page_is_what_the_code_exports() -> None:
    assert PAGE.read_text() == written(), "run 'python -m scripts.generate_metrics_reference'"


def test_a_metric_is_described_by_its_help_text_type_and_labels() -> None:
    assert list(documented([family("Answers.", 42)])) == [
        Documented("rota_answers", "gauge", ("question",), "Answers.")
    ]


@pytest.mark.parametrize("meaning", ["", "Answers"])
def test_a_metric_without_help_text_is_refused(meaning: str) -> None:
    with pytest.raises(Refused, match="rota_answers has no sentence"):
        list(documented([family(meaning, 42)]))


def test_a_metric_without_an_example_is_refused() -> None:
    with pytest.raises(Refused, match="rota_answers has no example"):
        list(documented([family("Answers.")]))


def test_a_module_whose_metrics_are_on_no_page_is_found(tmp_path: Path) -> None:
    module = tmp_path / "sdk/src/rota/counts.py"
    module.parent.mkdir(parents=True)
    module.write_text("from prometheus_client import Gauge\n")
    assert unlisted(tmp_path) == ["sdk/src/rota/counts.py"]
    assert unlisted(REPO) == []


def test_names_are_unique_and_have_the_prefix() -> None:
    names = [each.name for _, metrics in parts().values() for each in metrics]
    assert len(names) == len(set(names)) == len(labels_by_name())
    assert all(name.startswith("rota_") for name in names)


def test_a_metric_or_a_label_that_the_page_lacks_is_found() -> None:
    known, unknown = 'rota_lag_records{group="g",topic="t",partition="0"} 1\n', 'rota_answers{group="g"} 1\n'
    assert undocumented(known) == set()
    assert undocumented(known + unknown) == {"rota_answers"}
    assert undocumented('rota_lag_records{member="m"} 1\n') == {"rota_lag_records"}
