import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class Curator {
    private static final long WARM_UP_NS = 3_000_000_000L; // time for the just-in-time compiler

    private static long cycle(InterProcessMutex mutex) throws Exception {
        long begun = System.nanoTime();
        mutex.acquire();
        mutex.release();
        return System.nanoTime() - begun;
    }

    public static void main(String[] args) throws Exception {
        if (args.length < 2 || !args[0].equals("cycle")) System.exit(77);
        String host = URI.create(new BufferedReader(new InputStreamReader(System.in)).readLine()).getAuthority();
        CuratorFramework client = CuratorFrameworkFactory.newClient(host, 10000, 10000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        InterProcessMutex mutex = new InterProcessMutex(client, "/dlock-bench-curator");
        for (long end = System.nanoTime() + WARM_UP_NS; System.nanoTime() < end;) cycle(mutex);
        StringBuilder lines = new StringBuilder();
        for (long end = System.nanoTime() + Long.parseLong(args[1]) * 1_000_000; System.nanoTime() < end;)
            lines.append(cycle(mutex)).append(" 1\n");
        client.delete().guaranteed().forPath("/dlock-bench-curator");
        client.close();
        System.out.print(lines.append("end\n"));
        System.exit(0);
    }
}
