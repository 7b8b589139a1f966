"""A relay's figures in the format of Prometheus."""

from server_relay.histogram import BOUNDS_S
from server_relay.metrics import RelayMetrics

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_REFUSED, _CLAIMS, _POISON = "refused_", "claims_", "poison_"
_NAMES = (*(f"{bound:g}" for bound in BOUNDS_S), "+Inf")


def exposition(metrics: RelayMetrics) -> bytes:
    """Return the text of a scrape; raises ModuleNotFoundError without the package prometheus-client."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector

    def gauge(name: str, text: str, value: float) -> Metric:
        return GaugeMetricFamily(f"segue_relay_{name}", text, value=value)

    def counter(name: str, text: str, value: float) -> Metric:
        return CounterMetricFamily(f"segue_relay_{name}", text, value=value)

    def by_label(name: str, text: str, label: str, prefix: str) -> Metric:
        family = CounterMetricFamily(f"segue_relay_{name}", text, labels=[label])
        for count, value in sorted(metrics.counts.items()):
            if count.startswith(prefix):
                family.add_metric([count.removeprefix(prefix)], value)
        return family

    def spans(name: str, text: str, counted: tuple[tuple[int, ...], float]) -> Metric:
        buckets = list(zip(_NAMES, counted[0], strict=True))
        return HistogramMetricFamily(f"segue_relay_{name}_seconds", text, buckets=buckets, sum_value=counted[1])

    stored = metrics.mailbox
    families = [
        gauge("uptime_seconds", "Since the start.", metrics.uptime_ms / 1000),
        gauge("connections", "Websocket connections that are open.", metrics.connections),
        gauge("sockets", "Sockets that are open, also those that are no connection yet.", metrics.sockets),
        counter("sockets_cut_off", "Sockets that were too many.", metrics.sockets_cut_off),
        gauge("tasks_held", "Tasks in memory.", metrics.tasks_held),
        counter("turns", "Turns of the conductor.", metrics.turns),
        counter("commits", "Commits of the store.", metrics.commits),
        counter("read_bytes", "Bytes of messages that came.", metrics.read_bytes),
        counter("written_bytes", "Bytes of messages that were sent.", metrics.written_bytes),
        gauge("waiting_events", "Events that wait for the conductor.", metrics.waiting_events),
        gauge("waiting_bytes", "Bytes in all out-queues.", metrics.waiting_bytes),
        spans("commit", "How long a commit took.", metrics.commit_spans),
        spans("receipt", "From the arrival of a push to its receipts.", metrics.receipt_spans),
        by_label("refusals", "What was refused, by reason.", "reason", _REFUSED),
        by_label("claims", "Claims of calls that cannot be undone, by what became of them.", "verdict", _CLAIMS),
        by_label("poison", "Entries whose bytes no device may read, by how that was found.", "found", _POISON),
        gauge("poison_kept", "Hashes of poison that are remembered.", metrics.poison_kept),
        gauge("clock_suspended", "1 while the clock is not trusted and nothing expires.", metrics.clock_suspended),
        gauge("access_trouble", "1 while keys or revocations cannot be understood.", metrics.access_trouble),
        gauge("store_bytes", "Size of the store's files.", metrics.store_bytes),
        gauge("stored_subjects", "Subjects in the store.", stored.subjects),
        gauge("stored_tasks", "Tasks in the store.", stored.tasks),
        gauge("stored_streams", "Streams in the store.", stored.streams),
        gauge("stored_entries", "Entries in the store.", stored.entries),
        gauge("stored_blobs", "Blobs in the store.", stored.blobs),
        gauge("stored_blob_bytes", "Bytes of blobs in the store.", stored.blob_bytes),
        gauge("stored_age_seconds", "How long ago the store was counted.", metrics.mailbox_age_ms / 1000),
    ]
    families += [
        counter(name, "Counted since the start.", value)
        for name, value in sorted(metrics.counts.items())
        if not name.startswith((_REFUSED, _CLAIMS, _POISON))
    ]

    class Scrape(Collector):
        def collect(self) -> list[Metric]:
            return families

    registry = CollectorRegistry()
    registry.register(Scrape())
    return generate_latest(registry)
