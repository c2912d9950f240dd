"""The loops' steps as figures."""

from prometheus_client.parser import text_string_to_metric_families

from api.metrics import Figures, Metrics
from kernel.loop import Stage, Step
from rayjobs.decide.admit import AdmissionPlan, Start
from rayjobs.decide.attempt import Change
from rayjobs.model.run import End, EndClass, EndCode
from tests.builders.runs import NOW, a_run
from tests.fakes.clock import FakeClock


def figures(metrics: Metrics) -> dict[tuple[str, ...], float]:
    text = metrics.render(Figures(), []).decode()
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


def test_what_is_decided_placed_and_ended_is_counted() -> None:
    metrics = Metrics(FakeClock())
    run = a_run(0, enqueued_at=NOW)
    plan = AdmissionPlan(starts=(Start(run=run, cluster_id="clu_1", cluster="c1", record=dict),))
    ended = Change(end=End(end_class=EndClass.USER, code=EndCode.EXIT_NONZERO))
    metrics.watch(Step("queue", "queue", Stage.DECIDED, plan, decided_in_s=0.25))
    metrics.watch(Step("queue", "queue", Stage.APPLIED, plan))
    metrics.watch(Step("attempts", "run_1-a1", Stage.ACTED, None, ended))
    metrics.watch(Step("attempts", "run_1-a1", Stage.APPLIED, None, ended))
    seen = figures(metrics)
    assert seen["muster_decision_seconds_sum", "queue"] == 0.25
    assert (seen[("muster_queue_wait_seconds_count",)], seen["muster_attempts_total", "user"]) == (1, 1)
