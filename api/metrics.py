"""Prometheus figures: what loops count as it happens, and what is asked of the database at the scrape."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kernel.clock import Clock
from kernel.loop import Loop, Stage, Step
from rayjobs.decide.admit import AdmissionPlan
from rayjobs.decide.attempt import Change

_WAIT_BUCKETS_S = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 24 * 3600)
_DECISION_BUCKETS_S = (0.0005, 0.001, 0.005, 0.02, 0.1, 0.5, 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Counted in the database: runs by state, waiting runs by condition code, clusters by name and health.

    `quota` by resource group, resource and kind (used, reserved, max).
    """

    runs: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    clusters: Sequence[tuple[str, str]] = ()
    quota: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)


class Metrics:
    """One set per service, so that two services in one process do not add up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._registry = CollectorRegistry()
        self.queue_wait_seconds = Histogram(
            "muster_queue_wait_seconds",
            "Seconds from submission to allocation.",
            buckets=_WAIT_BUCKETS_S,
            registry=self._registry,
        )
        self.attempts_total = Counter(
            "muster_attempts_total", "Ended attempts by the class of their end.", ["end_class"], registry=self._registry
        )
        self.decision_seconds = Histogram(
            "muster_decision_seconds",
            "Seconds one decision took.",
            ["kind"],
            buckets=_DECISION_BUCKETS_S,
            registry=self._registry,
        )
        self._loop_lag_seconds = Gauge(
            "muster_loop_lag_seconds",
            "Seconds the most overdue step of a loop is late.",
            ["loop"],
            registry=self._registry,
        )

    def watch(self, step: Step) -> None:
        """Counts what the loops do, step by step."""
        if step.stage is Stage.DECIDED:
            self.decision_seconds.labels(step.loop).observe(step.decided_in_s)
        elif step.stage is Stage.APPLIED and isinstance(step.plan, AdmissionPlan):
            for start in step.plan.starts:
                since = start.run.waiting_since or start.run.enqueued_at
                self.queue_wait_seconds.observe((self._clock.now() - since).total_seconds())
        elif step.stage is Stage.APPLIED and isinstance(step.outcome, Change) and step.outcome.end is not None:
            self.attempts_total.labels(step.outcome.end.end_class).inc()

    def render(self, figures: Figures, loops: Iterable[Loop]) -> bytes:
        for loop in loops:
            self._loop_lag_seconds.labels(loop.reconciler.name).set(loop.lag_s)
        counted = CollectorRegistry()
        counted.register(_Counted(figures))
        return generate_latest(self._registry) + generate_latest(counted)


class _Counted(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        runs = GaugeMetricFamily("muster_runs", "Runs by state.", labels=["state"])
        for state, count in self._figures.runs.items():
            runs.add_metric([state], count)
        yield runs
        waiting = GaugeMetricFamily("muster_waiting_runs", "Waiting runs by what they wait for.", labels=["code"])
        for code, count in self._figures.waiting.items():
            waiting.add_metric([code], count)
        yield waiting
        health = GaugeMetricFamily("muster_cluster_health", "1 for the present verdict.", labels=["cluster", "status"])
        for cluster, status in self._figures.clusters:
            health.add_metric([cluster, status], 1)
        yield health
        labels = ["group", "resource", "kind"]
        quota = GaugeMetricFamily("muster_quota", "What resource groups may have, hold and keep.", labels=labels)
        for group, resources in self._figures.quota.items():
            for resource, kinds in resources.items():
                for kind, amount in kinds.items():
                    quota.add_metric([group, resource, kind], amount)
        yield quota
