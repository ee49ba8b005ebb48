import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.RedissonMultiLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A Redisson client that does what it is told, line by line, so that tests in another language can
 * drive a real one: {@code <id> <thread> <operation> <argument>...} on standard input is answered by
 * {@code <id> <result>} on standard output when it is done. Each thread named is a Java thread of
 * its own, because Redisson's owners are threads.
 *
 * Arguments: {@code single|replicated|cluster ADDRESS[,ADDRESS...] [SETTING=VALUE...]}. A setting is
 * one of Config, such as {@code fairLockWaitTimeout=2000}, by its setter.
 */
public class Driver {
    private final RedissonClient redisson;
    private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();

    private Driver(RedissonClient redisson) {
        this.redisson = redisson;
    }

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver(connect(arguments));
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            driver.take(words);
        }
        // The test has gone: end like a killed process, without closing anything.
        Runtime.getRuntime().halt(0);
    }

    private static RedissonClient connect(String[] arguments) throws Exception {
        try {
            return Redisson.create(config(arguments));
        } catch (IllegalArgumentException refused) {
            // Before 3.5 an address had no scheme.
            arguments[1] = arguments[1].replace("redis://", "");
            return Redisson.create(config(arguments));
        }
    }

    private static Config config(String[] arguments) throws Exception {
        Config config = new Config();
        config.setNettyThreads(4);
        String[] addresses = arguments[1].split(",");
        switch (arguments[0]) {
            case "single":
                config.useSingleServer().setAddress(addresses[0]).setConnectionMinimumIdleSize(1);
                break;
            case "replicated":
                Object replicated = call(config, "useReplicatedServers");
                call(replicated, "addNodeAddress", (Object) addresses);
                break;
            case "cluster":
                config.useClusterServers().addNodeAddress(addresses);
                break;
            default:
                throw new IllegalArgumentException(arguments[0]);
        }
        for (int i = 2; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            set(config, setting[0], setting[1]);
        }
        return config;
    }

    /** Settings differ from release to release. One that a release lacks is left alone. */
    private static void set(Config config, String name, String value) throws Exception {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method method : Config.class.getMethods()) {
            if (!method.getName().equals(setter)) {
                continue;
            }
            Class<?> type = method.getParameterTypes()[0];
            if (type == long.class) {
                method.invoke(config, Long.parseLong(value));
            } else if (type == int.class) {
                method.invoke(config, Integer.parseInt(value));
            } else if (type == boolean.class) {
                method.invoke(config, Boolean.parseBoolean(value));
            }
        }
    }

    private void take(String[] words) {
        String id = words[0];
        ExecutorService thread = threads.computeIfAbsent(words[1], key -> Executors.newSingleThreadExecutor());
        thread.execute(() -> {
            try {
                answer(id, run(words));
            } catch (Throwable problem) {
                answer(id, "failed " + problem.toString().replace('\n', ' '));
            }
        });
    }

    private static synchronized void answer(String id, String text) {
        System.out.println(id + " " + text);
        System.out.flush();
    }

    private String run(String[] words) throws Exception {
        String operation = words[2];
        RLock lock = lock(words[3]);
        switch (operation) {
            case "lock":
                if (words.length > 4) {
                    lock.lock(number(words, 4), TimeUnit.MILLISECONDS);
                } else {
                    lock.lock();
                }
                return "true";
            case "tryLock":
                return String.valueOf(tryLock(lock, words));
            case "tryLockAsync":
                return String.valueOf(lock
                        .tryLockAsync(number(words, 4), number(words, 5), TimeUnit.MILLISECONDS)
                        .get());
            case "unlock":
                lock.unlock();
                return "done";
            case "forceUnlock":
                return String.valueOf(call(lock, "forceUnlock"));
            case "isLocked":
                return String.valueOf(lock.isLocked());
            case "owner":
                return owner(lock);
            case "holdCount":
                return String.valueOf(lock.getHoldCount());
            case "multiLock":
                return String.valueOf(new RedissonMultiLock(lock, lock(words[4]))
                        .tryLock(number(words, 5), number(words, 6), TimeUnit.MILLISECONDS));
            default:
                throw new IllegalArgumentException(operation);
        }
    }

    /**
     * The fair lock of that name. With one of these words and a colon before it, a lock of another kind: {@code
     * nonreentrant} (a fair one, since 4.4.0), {@code plain}, {@code spin}, {@code fenced}, {@code read}, {@code write}.
     */
    private RLock lock(String name) throws Exception {
        int colon = name.indexOf(':');
        String rest = name.substring(colon + 1);
        switch (name.substring(0, Math.max(colon, 0))) {
            case "nonreentrant":
                return (RLock) get("getNonReentrantFairLock", rest);
            case "plain":
                return redisson.getLock(rest);
            case "spin":
                return (RLock) get("getSpinLock", rest);
            case "fenced":
                return (RLock) get("getFencedLock", rest);
            case "read":
                return redisson.getReadWriteLock(rest).readLock();
            case "write":
                return redisson.getReadWriteLock(rest).writeLock();
            default:
                return redisson.getFairLock(name);
        }
    }

    /** What not every release has. */
    private Object get(String kind, String name) throws Exception {
        return RedissonClient.class.getMethod(kind, String.class).invoke(redisson, name);
    }

    private static boolean tryLock(RLock lock, String[] words) throws InterruptedException {
        if (words.length == 4) {
            return lock.tryLock();
        }
        return lock.tryLock(number(words, 4), number(words, 5), TimeUnit.MILLISECONDS);
    }

    /** What the lock's keys call this thread. */
    private static String owner(RLock lock) throws Exception {
        for (Class<?> type = lock.getClass(); type != null; type = type.getSuperclass()) {
            for (Method method : type.getDeclaredMethods()) {
                if (method.getName().equals("getLockName")) {
                    method.setAccessible(true);
                    return (String) method.invoke(lock, Thread.currentThread().getId());
                }
            }
        }
        throw new NoSuchMethodException("getLockName");
    }

    /** Calls a method that is not in every release, or not of the same type. */
    private static Object call(Object target, String name, Object... arguments) throws Exception {
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                method.setAccessible(true);
                return method.invoke(target, arguments);
            }
        }
        throw new NoSuchMethodException(name);
    }

    private static long number(String[] words, int index) {
        return Long.parseLong(words[index]);
    }
}
