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
 * Collects the lines of each bucket, because a call of Python costs as much as a line. Nothing is held back when time
 * passes for the job or a checkpoint begins, so there is no state, and timers find all lines that came before them.
 */
public class Batches extends AbstractStreamOperator implements OneInputStreamOperator, ProcessingTimeCallback {
    private final int length;
    private final long patience;
    private final Map collected = new HashMap();
    private int characters;
    private boolean awaited;

    public Batches(Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService at) {
        setup(task, config, output);
        setProcessingTimeService(at);
        length = ((Integer) references[0]).intValue();
        patience = ((Integer) references[1]).longValue();
    }

    public void processElement(StreamRecord record) throws Exception {
        Row row = (Row) record.getValue();
        String line = (String) row.getField(1);
        StringBuilder lines = (StringBuilder) collected.get(row.getField(0));
        if (lines == null) {
            collected.put(row.getField(0), new StringBuilder(line));
            await();
        } else {
            lines.append('\u001e').append(line);
        }
        characters += line.length() + 1;
        if (characters >= length) {
            emit();
        }
    }

    public void processWatermark(Watermark mark) throws Exception {
        emit();
        super.processWatermark(mark);
    }

    public void prepareSnapshotPreBarrier(long checkpoint) throws Exception {
        emit();
        super.prepareSnapshotPreBarrier(checkpoint);
    }

    public void finish() throws Exception {
        emit();
        super.finish();
    }

    public void onProcessingTime(long timestamp) throws Exception {
        awaited = false;
        emit();
    }

    private void await() {
        if (!awaited) {
            ProcessingTimeService time = getProcessingTimeService();
            time.registerTimer(time.getCurrentProcessingTime() + patience, this);
            awaited = true;
        }
    }

    private void emit() {
        for (Iterator each = collected.entrySet().iterator(); each.hasNext();) {
            Map.Entry entry = (Map.Entry) each.next();
            output.collect(new StreamRecord(Row.of(new Object[] {entry.getKey(), entry.getValue().toString()})));
        }
        collected.clear();
        characters = 0;
    }
}
