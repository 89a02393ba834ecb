"""Collect lines into batches of one bucket's lines, in Java, to avoid a call of Python for each line.

The two operators are Java sources beside this file. Flink compiles them where they run, like the code that
its SQL generates, so nothing needs to be built or installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pyflink.common import Types
from pyflink.datastream import DataStream
from pyflink.datastream.data_stream import KeyedStream
from pyflink.java_gateway import get_gateway

__all__ = ["COLLECTED", "PATIENCE", "in_batches"]

COLLECTED: Final = 524_288
"""Characters after which a batch gets no more lines (about 4,000 lines). A checkpoint waits until it is evaluated."""

PATIENCE: Final = 50
"""Maximum milliseconds that a line waits for further lines of its batch."""

_KEYED: Final = Types.ROW([Types.INT(), Types.STRING()])


def in_batches(lines: DataStream, buckets: int) -> KeyedStream:
    """Return batches of lines, keyed by bucket; `buckets` is the job's maximum parallelism."""
    java = get_gateway().jvm
    stream = java.org.apache.flink.streaming.api.datastream
    by_key, key = java.KeyByKeySelector(), Types.ROW([Types.INT()]).get_java_type_info()
    keyed = _operator(lines._j_data_stream, "Keys", buckets).keyBy(by_key, key)  # noqa: SLF001 - not wrapped
    batches = _operator(keyed, "Batches", COLLECTED, PATIENCE)
    divided = stream.DataStreamUtils.reinterpretAsKeyedStream(batches, by_key, key)
    return KeyedStream(divided, Types.STRING(), DataStream(batches))


def _operator(stream: Any, name: str, *arguments: int) -> Any:  # noqa: ANN401 - objects of Java
    """Return the stream after the operator that the Java file `name` defines. The operator has no keyed state."""
    gateway = get_gateway()
    flink = gateway.jvm.org.apache.flink
    references = gateway.new_array(gateway.jvm.Object, len(arguments))
    for index, argument in enumerate(arguments):
        references[index] = argument
    source = (Path(__file__).parent / f"{name}.java").read_text()
    configuration = flink.configuration.Configuration()
    code = flink.table.runtime.generated.GeneratedOperator(f"cfmon.{name}", source, references, configuration)
    factory = flink.table.runtime.operators.CodeGenOperatorFactory(code)
    environment = stream.getExecutionEnvironment()
    operator = flink.streaming.api.transformations.OneInputTransformation(
        stream.getTransformation(), name, factory, _KEYED.get_java_type_info(), environment.getParallelism()
    )
    operator.setUid(name)
    environment.addOperator(operator)
    return flink.streaming.api.datastream.DataStream(environment, operator)
