/* A service whose threads read and write beside those of other hosts. It starts while its lock server is down.
 *
 *     service URI NAME < ORDERS      "read", "write", "health" and "stop", one a line
 */
#include <dlock/dlock.hpp>

#include <iostream>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

static std::mutex printing;

static void say(const std::string &text) {
    std::lock_guard<std::mutex> guard(printing);
    std::cout << text << std::endl;
}

/* What is held and when the server last answered: what a health page shows. Asks nobody. */
static void health(const dlock::client &client) {
    dlock_stats stats = DLOCK_STATS_INIT;
    dlock_client_stats(client.get(), &stats, nullptr);
    bool up = stats.last_answer_ms >= 0 && stats.last_answer_ms < 10000;
    say((up ? "up, holds " : "no answer for 10 s, holds ") + std::to_string(stats.held));
}

static void work(dlock::shared_mutex &page, const std::string &order) try {
    if (order == "read") {
        std::shared_lock<dlock::shared_mutex> guard(page);
        say("reads");
    } else {
        std::unique_lock<dlock::shared_mutex> guard(page, std::chrono::seconds(30));
        if (!guard) return say("somebody else reads or writes");
        say("writes with fence " + std::to_string(page.fence()));
        dlock::release(guard); /* unlike the destructor it throws if the lock was lost: then the write may not count */
    }
} catch (const dlock::error &why) { /* no exception may leave a thread */
    say(why.what());
}

int main(int argc, char **argv) try {
    if (argc != 3) return std::cerr << "usage: service URI NAME\n", 64;
    dlock::client_options how;
    how.flags = DLOCK_CLIENT_LAZY; /* the first lock connects */
    how.label = "example service";
    how.log = [](int level, const char *line) {
        if (level <= DLOCK_LOG_WARN) say(line);
    };
    dlock::client client(argv[1], how);
    dlock::shared_mutex page(client, argv[2]);
    std::vector<std::thread> threads;
    for (std::string order; std::getline(std::cin, order);) {
        if (order == "health")
            health(client);
        else if (order == "stop")
            client.stop(); /* those that wait end with an error, those that hold go on */
        else
            threads.emplace_back(work, std::ref(page), order);
    }
    for (std::thread &thread : threads) thread.join();
    return 0;
} catch (const dlock::error &why) {
    std::cerr << why.what() << "\n";
    return why.code() == DLOCK_EINVAL ? 64 : 69;
}
