"""The job's graph: source, batches, monitoring, sinks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from pyflink.common import Duration, Encoder, SimpleStringSchema, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.file_system import FileSink, FileSource, RollingPolicy, StreamFormat
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)

from cfmon_flink.arrival import received_on
from cfmon_flink.batches import in_batches
from cfmon_flink.messages import document_of
from cfmon_flink.monitoring import Monitoring, Settings
from cfmon_flink.mqtt import ToBroker

__all__ = ["DISORDER", "End", "build", "read_end"]

DISORDER: Final = 1
"""Seconds by which a line may be older than the previous line of its partition, which two bridges may fill."""


@dataclass(frozen=True)
class End:
    """Where lines come from, or messages go to: `kind` is `kafka`, `file`, `socket` or `mqtt`."""

    kind: str
    address: str = ""
    topic: str = ""


class _Received(TimestampAssigner):
    """Reads the time of a line from the line. Records of Kafka already have a time."""

    def extract_timestamp(self, value: str, record_timestamp: int) -> int:
        return received_on(value, record_timestamp)


def read_end(text: str, kinds: Collection[str]) -> End:
    """Return a source or sink given on the command line. Raises ValueError if it is not one of `kinds`.

    >>> read_end("kafka:one:9092,two:9092/steps", {"kafka"})
    End(kind='kafka', address='one:9092,two:9092', topic='steps')
    """
    kind, _, rest = text.partition(":")
    address, _, topic = rest.partition("/") if kind == "kafka" else (rest, "", "")
    wrong = kind not in kinds or (kind == "mqtt") == bool(rest) or (kind == "kafka") != bool(address and topic)
    if wrong or (kind == "socket" and not rest.rpartition(":")[2].isdecimal()):
        forms = {"kafka": "kafka:BROKERS/TOPIC", "file": "file:FOLDER", "socket": "socket:HOST:PORT", "mqtt": "mqtt"}
        raise ValueError(f"{text!r} is none of {', '.join(forms[each] for each in sorted(kinds))}")
    return End(kind, address, topic)


def build(
    *,
    config: str,
    source: End,
    targets: Sequence[End],
    metrics: str | None = None,
    hydrated: int = 20_000,
    buckets: int = 128,
) -> StreamExecutionEnvironment:
    """Return the environment with the job's graph; arguments as on the command line of `job.py`."""
    environment = StreamExecutionEnvironment.get_execution_environment()
    host, _, port = (metrics or "").rpartition(":")
    settings = Settings(config, hydrated=hydrated, metrics=(host, int(port)) if metrics else None)
    environment.set_max_parallelism(buckets)
    batches = in_batches(_lines(environment, source), buckets)
    sent = batches.process(Monitoring(settings), Types.STRING())
    sent.name("monitor").uid("monitor")  # the state belongs to the uid, whatever else changes in the graph
    for target in targets:
        _send(sent, target, config)
    return environment


def _lines(environment: StreamExecutionEnvironment, source: End) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(DISORDER))
    if source.kind == "kafka":
        return environment.from_source(_kafka_source(source), strategy, "steps").uid("steps")
    if source.kind == "file":
        files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), source.address).build()
        return environment.from_source(files, WatermarkStrategy.no_watermarks(), "steps").uid("steps")
    host, _, port = source.address.rpartition(":")
    received = environment._j_stream_execution_environment.socketTextStream(host, int(port))  # noqa: SLF001 - not wrapped
    return DataStream(received).assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(_Received()))


def _kafka_source(source: End) -> KafkaSource:
    # The first start reads all that the log still has; later starts continue from the checkpoint.
    start = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
    builder = KafkaSource.builder().set_bootstrap_servers(source.address).set_topics(source.topic).set_group_id("cfmon")
    return builder.set_starting_offsets(start).set_value_only_deserializer(SimpleStringSchema()).build()


def _send(sent: DataStream, target: End, config: str) -> None:
    if target.kind == "mqtt":
        sent.process(ToBroker(config), Types.STRING()).name("alerts to MQTT")
        return
    documents = sent.map(document_of, Types.STRING()).filter(bool)
    documents.sink_to(_kafka_sink(target) if target.kind == "kafka" else _file_sink(target)).uid(f"to {target.kind}")


def _file_sink(target: End) -> FileSink:
    builder = FileSink.for_row_format(target.address, Encoder.simple_string_encoder("UTF-8"))
    return builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()


def _kafka_sink(target: End) -> KafkaSink:
    record = KafkaRecordSerializationSchema.builder().set_topic(target.topic)
    record = record.set_value_serialization_schema(SimpleStringSchema()).build()
    builder = KafkaSink.builder().set_bootstrap_servers(target.address).set_record_serializer(record)
    return builder.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build()
