// Curator's locks at the command of interop_test.py: Peer HOST:PORT PATH KIND, where KIND is mutex, write, read or
// permits:LIMIT; then one command a line on stdin.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;

public class Peer {
    private final String kind;
    private final int limit;
    private InterProcessMutex mutex;
    private InterProcessSemaphoreV2 semaphore;
    private Lease lease;

    private Peer(CuratorFramework client, String path, String what) {
        kind = what.split(":")[0];
        limit = kind.equals("permits") ? Integer.parseInt(what.split(":")[1]) : 1;
        if (kind.equals("mutex")) mutex = new InterProcessMutex(client, path);
        if (kind.equals("write")) mutex = new InterProcessReadWriteLock(client, path).writeLock();
        if (kind.equals("read")) mutex = new InterProcessReadWriteLock(client, path).readLock();
        if (kind.equals("permits")) semaphore = new InterProcessSemaphoreV2(client, path, limit);
    }

    private boolean take() throws Exception {
        if (mutex != null) return mutex.acquire(60, TimeUnit.SECONDS);
        lease = semaphore.acquire(60, TimeUnit.SECONDS);
        return lease != null;
    }

    private void free() throws Exception {
        if (mutex != null)
            mutex.release();
        else
            semaphore.returnLease(lease);
    }

    // Who is inside, as peer.c has it.
    private String wrong(Path folder) throws Exception {
        List<String> inside;
        try (Stream<Path> all = Files.list(folder)) {
            inside = all.map(path -> path.getFileName().toString()).collect(Collectors.toList());
        }
        boolean alone = inside.size() == 1, writer = inside.stream().anyMatch(name -> name.startsWith("w"));
        boolean right = kind.equals("read") ? !writer : kind.equals("permits") ? inside.size() <= limit : alone;
        return right ? null : inside.toString();
    }

    private String loop(int rounds, Path folder) throws Exception {
        char letter = kind.equals("read") ? 'r' : kind.equals("permits") ? 'p' : 'w';
        Path inside = folder.resolve(letter + "" + ProcessHandle.current().pid());
        for (int i = 0; i < rounds; i++) {
            if (!take()) return "timeout";
            try {
                Files.createFile(inside);
                String before = wrong(folder);
                Thread.sleep(2);
                String after = wrong(folder);
                Files.delete(inside);
                if (before != null) return before;
                if (after != null) return after;
            } finally {
                free();
            }
        }
        return "done";
    }

    private String obey(String[] words) {
        try {
            if (words[0].equals("take")) return take() ? "held" : "timeout";
            if (words[0].equals("loop")) return loop(Integer.parseInt(words[1]), Path.of(words[2]));
            if (!words[0].equals("free")) return "unknown";
            free();
            return "freed";
        } catch (Exception e) {
            return e.toString();
        }
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(args[0]).sessionTimeoutMs(4000)
            .connectionTimeoutMs(10000).retryPolicy(new RetryOneTime(100)).build();
        client.start();
        client.blockUntilConnected();
        Peer peer = new Peer(client, args[1], args[2]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line; (line = in.readLine()) != null;) System.out.println(peer.obey(line.split(" ")));
        client.close();
    }
}
