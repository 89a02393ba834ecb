package cfmon;

import java.io.IOException;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonParser;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonToken;
import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;
import org.apache.flink.types.Row;

/**
 * Gives each line its key: the number of its agent's bucket. There is one bucket for each of Flink's key groups, so
 * that each TaskManager has as many as another. A line without an agent, and one that is not JSON, goes to the first.
 */
public class Keys extends AbstractStreamOperator implements OneInputStreamOperator {
    private static final JsonFactory JSON = new JsonFactory();

    private final int buckets;
    private Integer[] keys;

    public Keys(Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService time) {
        setup(task, config, output);
        setProcessingTimeService(time);
        buckets = ((Integer) references[0]).intValue();
    }

    /** Finds a key for each key group. */
    public void open() throws Exception {
        super.open();
        keys = new Integer[buckets];
        int missing = buckets;
        for (int number = 0; missing > 0; number++) {
            Integer key = Integer.valueOf(number);
            int group = KeyGroupRangeAssignment.assignToKeyGroup(Row.of(new Object[] {key}), buckets);
            if (keys[group] == null) {
                keys[group] = key;
                missing--;
            }
        }
    }

    public void processElement(StreamRecord record) throws Exception {
        String line = (String) record.getValue();
        int bucket = 0;
        try {
            String agent = agentOf(line);
            if (agent != null) {
                bucket = KeyGroupRangeAssignment.assignToKeyGroup(agent, buckets);
            }
        } catch (IOException error) {
            line = "";  // Python refuses it too, and counts it
        }
        output.collect(record.replace(Row.of(new Object[] {keys[bucket], plain(line)})));
    }

    /** Returns the agent that a line names, null for none; of several the last, as Python takes it. */
    private static String agentOf(String line) throws IOException {
        String agent = null;
        JsonParser parser = JSON.createParser(line);
        if (parser.nextToken() == JsonToken.START_OBJECT) {
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                boolean named = "agent".equals(parser.getCurrentName());
                JsonToken value = parser.nextToken();
                if (named) {
                    agent = value == JsonToken.VALUE_STRING ? parser.getText() : null;
                }
                parser.skipChildren();
            }
        }
        parser.close();
        return agent;
    }

    /** Returns a line without what Python cannot be given, and without separators; lines of JSON keep their meaning. */
    private static String plain(String line) {
        for (int at = 0; at < line.length(); at++) {
            if (plain(line.charAt(at)) != line.charAt(at)) {
                char[] all = line.toCharArray();
                for (int each = at; each < all.length; each++) {
                    all[each] = plain(all[each]);
                }
                return new String(all);
            }
        }
        return line;
    }

    private static char plain(char one) {
        if (Character.isSurrogate(one)) {
            return '\ufffd';
        }
        return one == '\u0000' || one == '\u001e' ? '\u0001' : one;
    }
}
