package cfmon;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.flink.api.common.operators.ProcessingTimeService.ProcessingTimeCallback;
import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;
import org.apache.flink.types.Row;

/**
 * Collects the lines of a bucket, because a call of Python costs as much as a line. Nothing is held back when time
 * passes for the job or a checkpoint begins, so there is no state, and a line comes before the timers that are after it.
 */
public class Batches extends AbstractStreamOperator implements OneInputStreamOperator, ProcessingTimeCallback {
    private final int length;
    private final long patience;
    private final Map open = new HashMap();
    private boolean awaited;

    public Batches(Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService time) {
        setup(task, config, output);
        setProcessingTimeService(time);
        length = ((Integer) references[0]).intValue();
        patience = ((Integer) references[1]).longValue();
    }

    public void processElement(StreamRecord record) throws Exception {
        Row row = (Row) record.getValue();
        Object key = row.getField(0);
        StringBuilder lines = (StringBuilder) open.get(key);
        if (lines == null) {
            lines = new StringBuilder((String) row.getField(1));
            open.put(key, lines);
            await();
        } else {
            lines.append('\u001e').append((String) row.getField(1));
        }
        if (lines.length() >= length) {
            open.remove(key);
            emit(key, lines);
        }
    }

    public void processWatermark(Watermark mark) throws Exception {
        emitAll();
        super.processWatermark(mark);
    }

    public void prepareSnapshotPreBarrier(long checkpoint) throws Exception {
        emitAll();
        super.prepareSnapshotPreBarrier(checkpoint);
    }

    public void finish() throws Exception {
        emitAll();
        super.finish();
    }

    public void onProcessingTime(long timestamp) throws Exception {
        awaited = false;
        emitAll();
    }

    private void await() {
        if (!awaited) {
            ProcessingTimeService time = getProcessingTimeService();
            time.registerTimer(time.getCurrentProcessingTime() + patience, this);
            awaited = true;
        }
    }

    private void emitAll() {
        for (Iterator each = open.entrySet().iterator(); each.hasNext();) {
            Map.Entry entry = (Map.Entry) each.next();
            emit(entry.getKey(), (StringBuilder) entry.getValue());
        }
        open.clear();
    }

    private void emit(Object key, StringBuilder lines) {
        output.collect(new StreamRecord(Row.of(new Object[] {key, lines.toString()})));
    }
}
