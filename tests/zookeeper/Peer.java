// Curator's InterProcessMutex at the command of interop.py: Peer HOST:PORT PATH, then one command a line on stdin.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class Peer {
    private static String loop(InterProcessMutex mutex, int rounds, Path folder) throws Exception {
        Path inside = folder.resolve("inside"), count = folder.resolve("count");
        for (int i = 0; i < rounds; i++) {
            if (!mutex.acquire(60, TimeUnit.SECONDS)) return "timeout";
            try {
                Files.createFile(inside); // fails when somebody else is inside
                int seen = Integer.parseInt(Files.readString(count).trim());
                Thread.sleep(2);
                Files.writeString(count, (seen + 1) + "\n", StandardCharsets.US_ASCII);
                Files.delete(inside);
            } finally {
                mutex.release();
            }
        }
        return "done";
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(args[0]).sessionTimeoutMs(4000)
            .connectionTimeoutMs(10000).retryPolicy(new RetryOneTime(100)).build();
        client.start();
        client.blockUntilConnected();
        InterProcessMutex mutex = new InterProcessMutex(client, args[1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.split(" ");
            String answer = "unknown";
            try {
                if (words[0].equals("take")) {
                    answer = mutex.acquire(60, TimeUnit.SECONDS) ? "held" : "timeout";
                } else if (words[0].equals("free")) {
                    mutex.release();
                    answer = "freed";
                } else if (words[0].equals("loop")) {
                    answer = loop(mutex, Integer.parseInt(words[1]), Path.of(words[2]));
                }
            } catch (Exception e) {
                answer = e.toString();
            }
            System.out.println(answer);
        }
        client.close();
    }
}
