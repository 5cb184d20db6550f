import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BiFunction;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson, and Curator for ZooKeeper, a thread for each task. The contract of a runner is in ../../README.md. */
public final class Runner {
    private static final int HELD_MAX = 200_000;
    private static final int PERMITS = 5;
    private static final int TTL_S = 30;
    private static final int CONNECT_MS = 5_000;
    /** The versions in pom.xml. The archive of all libraries has no manifest of each. */
    private static final Map<String, String> VERSIONS = Map.of("redisson", "3.45.1", "curator", "5.9.0");
    /** One of so many acquisitions of a read-write lock is that of a writer. */
    private static final int WRITES = 10;

    private final Map<String, String> args;
    private final int tasks;
    private final boolean ownNames;
    private final int sectionUs;

    private Runner(Map<String, String> args) {
        this.args = args;
        tasks = Integer.parseInt(args.get("tasks"));
        ownNames = args.get("own-names").equals("1");
        sectionUs = Integer.parseInt(args.get("section-us"));
    }

    /** A lock or a semaphore, as one task uses it. */
    private interface Primitive {
        void acquire() throws Exception;

        void release() throws Exception;
    }

    /** No lease: renewed by its watchdog, as its documentation recommends. */
    private record Mutex(RLock lock) implements Primitive {
        public void acquire() {
            lock.lock();
        }

        public void release() {
            lock.unlock();
        }
    }

    /** Each acquisition has a node of its own, so all tasks can share a session. */
    private record CuratorMutex(InterProcessMutex mutex) implements Primitive {
        public void acquire() throws Exception {
            mutex.acquire();
        }

        public void release() throws Exception {
            mutex.release();
        }
    }

    private record Semaphore(RSemaphore semaphore) implements Primitive {
        public void acquire() throws Exception {
            semaphore.acquire();
        }

        public void release() {
            semaphore.release();
        }
    }

    private static final class ExpirableSemaphore implements Primitive {
        private final RPermitExpirableSemaphore semaphore;
        private String permit;

        ExpirableSemaphore(RPermitExpirableSemaphore semaphore) {
            this.semaphore = semaphore;
        }

        public void acquire() throws Exception {
            permit = semaphore.acquire(TTL_S, TimeUnit.SECONDS);
        }

        public void release() {
            semaphore.release(permit);
        }
    }

    private static final class ReadWriteLock implements Primitive {
        private final RReadWriteLock locks;
        private int number;
        private RLock held;

        ReadWriteLock(RReadWriteLock locks, int task) {
            this.locks = locks;
            number = task;
        }

        public void acquire() {
            RLock lock = number++ % WRITES == 0 ? locks.writeLock() : locks.readLock();
            lock.lock();
            held = lock;
        }

        public void release() {
            held.unlock();
        }
    }

    private Primitive create(RedissonClient client, String name, int task) {
        String variant = args.get("variant");
        switch (args.get("primitive")) {
            case "semaphore" -> {
                if (variant.equals("expirable")) {
                    RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
                    semaphore.trySetPermits(PERMITS);
                    return new ExpirableSemaphore(semaphore);
                }
                RSemaphore semaphore = client.getSemaphore(name);
                semaphore.trySetPermits(PERMITS);
                return new Semaphore(semaphore);
            }
            case "rw-lock" -> {
                return new ReadWriteLock(client.getReadWriteLock(name), task);
            }
            default -> {
                return new Mutex(
                        switch (variant) {
                            case "fair" -> client.getFairLock(name);
                            case "spin" -> client.getSpinLock(name);
                            default -> client.getLock(name);
                        });
            }
        }
    }

    /** The result of one window. */
    private final class Window {
        private final long end;
        private long acquisitions;
        private final Map<Integer, Long> waits = new TreeMap<>();
        private double waitMax;
        private final Map<Integer, Long> pairs = new TreeMap<>();
        private final Map<Integer, Long> sections = new TreeMap<>();
        private final List<long[]> held = new ArrayList<>();
        private Exception failure;

        Window(double seconds) {
            end = System.nanoTime() + (long) (seconds * 1e9);
        }

        private static double count(Map<Integer, Long> histogram, long nanos) {
            double micros = nanos / 1e3;
            histogram.merge((int) Math.floor(200 * Math.log10(micros + 1)), 1L, Long::sum);
            return micros;
        }

        private synchronized void waited(long nanos) {
            waitMax = Math.max(waitMax, count(waits, nanos));
        }

        private synchronized void paired(long nanos) {
            acquisitions++;
            count(pairs, nanos);
        }

        private synchronized void endedSection(long nanos) {
            count(sections, nanos);
        }

        /** Lasts until the section is over by the clock, as timers are late. Readers sleep: each is a thread. */
        private void section(long acquired) {
            boolean sleeps = args.get("primitive").equals("rw-lock");
            long left = sectionUs * 1_000L;
            while (left > 0) {
                if (sleeps) {
                    LockSupport.parkNanos(left);
                } else {
                    Thread.onSpinWait();
                }
                left = acquired + sectionUs * 1_000L - System.nanoTime();
            }
        }

        private void work(Primitive lock) throws Exception {
            boolean keepHeld = tasks == 1 && !ownNames;
            for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
                lock.acquire();
                long acquired = System.nanoTime();
                waited(Math.min(acquired, end) - asked);
                if (acquired >= end) {
                    lock.release();
                    return;
                }
                if (sectionUs > 0) {
                    section(acquired);
                    endedSection(System.nanoTime() - acquired);
                }
                if (keepHeld && held.size() < HELD_MAX) {
                    held.add(new long[] {acquired, System.nanoTime()});
                }
                lock.release();
                paired(System.nanoTime() - asked);
            }
        }

        Window run(List<Primitive> locks) throws Exception {
            List<Thread> threads = new ArrayList<>();
            for (Primitive lock : locks) {
                Thread thread = new Thread(() -> {
                    try {
                        work(lock);
                    } catch (Exception exception) {
                        failure = exception;
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
            if (failure != null) {
                throw failure;
            }
            return this;
        }

        private static String json(Map<Integer, Long> histogram) {
            return histogram.entrySet().stream()
                    .map(entry -> "\"" + entry.getKey() + "\":" + entry.getValue())
                    .collect(Collectors.joining(",", "{", "}"));
        }

        String json() {
            return "{\"version\":\"" + VERSIONS.get(args.get("library"))
                    + "\",\"acquisitions\":" + acquisitions
                    + ",\"wait_us\":" + json(waits)
                    + ",\"wait_max_us\":" + waitMax
                    + ",\"pair_us\":" + json(pairs)
                    + ",\"section_us\":" + json(sections)
                    + ",\"held\":" + held.stream().map(Arrays::toString).toList() + "}";
        }
    }

    /** Connects, and returns the constructor of a task's lock from its name and the number of the task. */
    private BiFunction<String, Integer, Primitive> connect() throws Exception {
        String url = args.get("url");
        if (args.get("library").equals("curator")) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(
                    url.replace("zookeeper://", ""),
                    TTL_S * 1_000,
                    CONNECT_MS,
                    new ExponentialBackoffRetry(1_000, 3));
            client.start();
            client.blockUntilConnected();
            return (name, task) -> new CuratorMutex(new InterProcessMutex(client, "/" + name));
        }
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        RedissonClient client = Redisson.create(config);
        return (name, task) -> create(client, name, task);
    }

    private void run() throws Exception {
        BiFunction<String, Integer, Primitive> create = connect();
        List<Primitive> locks = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            String name = ownNames ? args.get("name") + "/" + task : args.get("name");
            locks.add(create.apply(name, task));
        }
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(new Window(Double.parseDouble(line)).run(locks).json());
        }
    }

    public static void main(String[] arguments) {
        Map<String, String> args = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            args.put(arguments[i].substring(2), arguments[i + 1]);
        }
        int status = 0;
        try {
            new Runner(args).run();
        } catch (Exception exception) {
            System.err.println(exception);
            status = 1;
        }
        // The libraries' own threads would keep the process.
        System.out.flush();
        Runtime.getRuntime().halt(status);
    }
}
