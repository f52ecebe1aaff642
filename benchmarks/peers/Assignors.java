// Kafka's assignors on groups that come as lines on standard input; benchmarks/peers/java_assignors.py writes them.
//
//   group STRATEGY RUNS WHAT      begins a group; WHAT is `opened`, from subscriptions to lists, or `wire`, from bytes to bytes
//   topic NAME RACKS,RACKS,…      one RACKS for each partition: racks joined by +, or -
//   topics NAME NAME …            a subscription; members name it by its number
//   member ID RACK GENERATION SUBSCRIPTION TOPIC:0,1,2 TOPIC:3 …
//   end
//
// Answers `given ID TOPIC:0,1,2 …` for each member when RUNS is 0, else `ms MS`, the mean of the runs after a first one,
// which is cold; then `end`. The time is that of all threads of the process, garbage collection included.

import com.sun.management.OperatingSystemMXBean;
import java.io.*;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.*;

public class Assignors {
    static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), false);

    final String strategy;
    final int runs;
    final boolean onWire;
    final List<PartitionInfo> partitions = new ArrayList<>();
    final Map<String, Node> nodes = new LinkedHashMap<>();
    final List<List<String>> subscriptions = new ArrayList<>();
    final Map<String, Subscription> members = new LinkedHashMap<>();

    Assignors(String strategy, int runs, boolean onWire) {
        this.strategy = strategy;
        this.runs = runs;
        this.onWire = onWire;
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // What Kafka logs is no answer.
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        Assignors group = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "group": group = new Assignors(words[1], Integer.parseInt(words[2]), words[3].equals("wire")); break;
                case "topic": group.topic(words[1], words[2].split(",")); break;
                case "topics": group.subscriptions.add(Arrays.asList(words).subList(1, words.length)); break;
                case "member": group.member(words); break;
                case "end": group.answer(); OUT.println("end"); OUT.flush(); break;
                default: throw new IllegalArgumentException(line);
            }
        }
    }

    void topic(String name, String[] racks) {
        for (int number = 0; number < racks.length; number++) {
            String[] each = racks[number].split("\\+");
            Node[] replicas = new Node[each.length];
            for (int place = 0; place < each.length; place++) {
                String rack = each[place].equals("-") ? null : each[place];
                replicas[place] = nodes.computeIfAbsent(each[place], r -> new Node(nodes.size(), "host", 1, rack));
            }
            partitions.add(new PartitionInfo(name, number, replicas[0], replicas, replicas));
        }
    }

    void member(String[] words) {
        List<TopicPartition> owned = new ArrayList<>();
        for (int at = 5; at < words.length; at++) {
            String[] topic = words[at].split(":");
            for (String number : topic[1].split(",")) {
                owned.add(new TopicPartition(topic[0], Integer.parseInt(number)));
            }
        }
        Optional<String> rack = words[2].equals("-") ? Optional.empty() : Optional.of(words[2]);
        List<String> topics = subscriptions.get(Integer.parseInt(words[4]));
        members.put(words[1], new Subscription(topics, null, owned, Integer.parseInt(words[3]), rack));
    }

    ConsumerPartitionAssignor assignor() {
        switch (strategy) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    void answer() {
        Cluster cluster = new Cluster("cluster", nodes.values(), partitions, Set.of(), Set.of());
        if (runs == 0) {
            give(assignor().assign(cluster, new GroupSubscription(members)));
            return;
        }
        if (!onWire) {
            OUT.println("ms" + timed(() -> assignor().assign(cluster, new GroupSubscription(members))));
            return;
        }
        Map<String, ByteBuffer> blobs = new LinkedHashMap<>();
        members.forEach((id, said) -> blobs.put(id, ConsumerProtocol.serializeSubscription(said)));
        members.clear();
        OUT.println("ms" + timed(() -> wire(cluster, blobs)));
    }

    List<ByteBuffer> wire(Cluster cluster, Map<String, ByteBuffer> blobs) {
        Map<String, Subscription> read = new HashMap<>();
        blobs.forEach((id, blob) -> read.put(id, ConsumerProtocol.deserializeSubscription(blob.duplicate())));
        List<ByteBuffer> written = new ArrayList<>();
        assignor().assign(cluster, new GroupSubscription(read)).groupAssignment().values()
            .forEach(each -> written.add(ConsumerProtocol.serializeAssignment(each)));
        return written;
    }

    /** The mean of so many runs, and of more until there is something to measure: the clock ticks in 10 ms. */
    String timed(java.util.function.Supplier<Object> work) {
        Object kept = work.get();
        System.gc();
        long began = PROCESS.getProcessCpuTime(), took = 0;
        int done = 0;
        while (done < runs || took < 300_000_000) {
            kept = work.get();
            done++;
            took = PROCESS.getProcessCpuTime() - began;
        }
        return kept == null ? "" : " " + took / 1e6 / done;
    }

    void give(GroupAssignment plan) {
        plan.groupAssignment().forEach((id, assignment) -> {
            Map<String, StringJoiner> topics = new TreeMap<>();
            for (TopicPartition each : assignment.partitions()) {
                topics.computeIfAbsent(each.topic(), t -> new StringJoiner(",")).add("" + each.partition());
            }
            OUT.print("given " + id);
            topics.forEach((topic, numbers) -> OUT.print(" " + topic + ":" + numbers));
            OUT.println();
        });
    }
}
