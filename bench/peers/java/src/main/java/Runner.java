import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson, a thread for each task. The contract of a runner is in ../../README.md. */
public final class Runner {
    private static final int EVENTS_MAX = 200_000;

    private long acquisitions;
    private final Map<Integer, Long> waits = new TreeMap<>();
    private double waitMax;
    private final List<long[]> events = new ArrayList<>();
    private Exception failure;

    private synchronized void acquired(long nanos, boolean locked) {
        double micros = nanos / 1e3;
        waits.merge((int) Math.floor(20 * Math.log10(micros + 1)), 1L, Long::sum);
        waitMax = Math.max(waitMax, micros);
        acquisitions += locked ? 1 : 0;
    }

    private void work(RLock lock, int sectionUs, boolean keep, long end) {
        try {
            while (System.nanoTime() < end) {
                long asked = System.nanoTime();
                // No lease: renewed by its watchdog, as its documentation recommends.
                boolean locked = lock.tryLock(end - asked, TimeUnit.NANOSECONDS);
                long acquired = System.nanoTime();
                acquired(acquired - asked, locked);
                if (!locked) {
                    return;
                }
                if (sectionUs > 0) {
                    TimeUnit.MICROSECONDS.sleep(sectionUs);
                }
                if (keep && events.size() < EVENTS_MAX) {
                    events.add(new long[] {acquired, System.nanoTime()});
                }
                lock.unlock();
            }
        } catch (Exception exception) {
            synchronized (this) {
                failure = exception;
            }
        }
    }

    private void run(Map<String, String> args) throws Exception {
        int tasks = Integer.parseInt(args.get("tasks"));
        boolean ownNames = args.get("own-names").equals("1");
        int sectionUs = Integer.parseInt(args.get("section-us"));
        double seconds = Double.parseDouble(args.get("seconds"));
        Config config = new Config();
        config.useSingleServer().setAddress(args.get("url"));
        RedissonClient client = Redisson.create(config);
        List<RLock> locks = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            String name = ownNames ? args.get("name") + "/" + task : args.get("name");
            locks.add(
                    switch (args.get("variant")) {
                        case "fair" -> client.getFairLock(name);
                        case "spin" -> client.getSpinLock(name);
                        default -> client.getLock(name);
                    });
        }
        System.out.println("ready");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        long start = System.nanoTime();
        long end = start + (long) (seconds * 1e9);
        boolean keep = tasks == 1 && !ownNames;
        List<Thread> threads = new ArrayList<>();
        for (RLock lock : locks) {
            Thread thread = new Thread(() -> work(lock, sectionUs, keep, end));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure != null) {
            throw failure;
        }
        double spent = Math.min((System.nanoTime() - start) / 1e9, seconds);
        StringBuilder json = new StringBuilder();
        String version = Redisson.class.getPackage().getImplementationVersion();
        json.append("{\"library\":\"redisson\",\"version\":\"");
        json.append(version == null ? "3.45.1" : version);
        json.append("\",\"variant\":\"").append(args.get("variant"));
        json.append("\",\"acquisitions\":").append(acquisitions);
        json.append(",\"seconds\":").append(spent);
        json.append(",\"wait_max_us\":").append(waitMax).append(",\"wait_us\":[");
        String comma = "";
        for (Map.Entry<Integer, Long> wait : waits.entrySet()) {
            json.append(comma).append('[').append(wait.getKey());
            json.append(',').append(wait.getValue()).append(']');
            comma = ",";
        }
        json.append("],\"events\":[");
        comma = "";
        for (long[] event : events) {
            json.append(comma).append('[').append(event[0]);
            json.append(',').append(event[1]).append(']');
            comma = ",";
        }
        System.out.println(json.append("]}"));
        System.out.flush();
        // Its own threads would keep the process.
        Runtime.getRuntime().halt(0);
    }

    public static void main(String[] arguments) {
        Map<String, String> args = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            args.put(arguments[i].substring(2), arguments[i + 1]);
        }
        try {
            new Runner().run(args);
        } catch (Exception exception) {
            System.err.println(exception);
            Runtime.getRuntime().halt(1);
        }
    }
}
