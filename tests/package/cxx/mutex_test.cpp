/* dlock.hpp on file:, in a separate folder: the standard library's requirements for a mutex, and our additions. */
#include <dlock/dlock.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#define CHECK(what)                                                         \
    do {                                                                    \
        if (!(what)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
            std::exit(1);                                                   \
        }                                                                   \
    } while (0)

static void fail(const char *what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

static_assert(std::is_move_constructible<dlock::client>::value && !std::is_copy_constructible<dlock::client>::value,
              "");
static_assert(std::is_move_constructible<dlock::lock>::value && !std::is_copy_constructible<dlock::lock>::value, "");
static_assert(noexcept(std::declval<dlock::lock &>().unlock()), "destructors of guards call it");

static void guards(const std::string &uri) {
    dlock::client here(uri), there(uri);
    dlock::lock mine(here, "guards"), theirs(there, "guards");
    std::uint64_t fence = 0;
    {
        std::lock_guard<dlock::lock> guard(mine);
        CHECK(mine.held() && mine.fence() > 0 && mine.remaining() > std::chrono::seconds(0));
        mine.extend(); /* renewed at once */
        CHECK(!theirs.try_lock());
        std::unique_lock<dlock::lock> other(theirs, std::chrono::milliseconds(20));
        CHECK(!other);
        CHECK(!theirs.try_lock_until(std::chrono::steady_clock::now() - std::chrono::seconds(1)));
        mine.lock(); /* re-entry */
        mine.unlock();
        CHECK(mine.held());
        fence = mine.fence();
    }
    CHECK(!mine.held());
    std::unique_lock<dlock::lock> other(theirs, std::chrono::seconds(5));
    CHECK(other && theirs.fence() > fence && theirs.ready());
    dlock::lock moved = std::move(mine);
    CHECK(!moved.try_lock());
}

static void both_at_once(const std::string &uri) {
    dlock::client client(uri);
    int counter = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&client, &counter, i] {
            dlock::lock one(client, "one"), two(client, "two");
            for (int round = 0; round < 50; round++) {
                if (i % 2)
                    std::lock(one, two);
                else
                    std::lock(two, one);
                std::lock_guard<dlock::lock> first(one, std::adopt_lock), second(two, std::adopt_lock);
                counter++;
            }
        });
    for (std::thread &thread : threads) thread.join();
    CHECK(counter == 200);
}

static void errors(const std::string &uri) {
    try {
        dlock::client nowhere("no-such-scheme://x");
        fail("opened a scheme that nobody has");
    } catch (const dlock::error &why) {
        CHECK(why.code() == DLOCK_ENOBACKEND && std::string(why.what()).find("no-such-scheme") != std::string::npos);
    }
    dlock::client client(uri);
    dlock::lock lock(client, "errors");
    try {
        lock.release();
        fail("released what was not held");
    } catch (const dlock::error &why) {
        CHECK(why.code() == DLOCK_EOWNER);
    }
    lock.unlock(); /* says nothing */
}

static void losses_are_told(const std::string &uri) {
    dlock::client client(uri);
    std::atomic<int> code{0};
    dlock::options how;
    how.lease = std::chrono::milliseconds(200);
    how.flags = DLOCK_FIXED_LEASE;
    std::string name;
    std::uint64_t fence = 0;
    dlock_loss reason = DLOCK_NOT_LOST;
    how.on_lost = [&](const dlock::lost &why) {
        name = why.name();
        fence = why.fence();
        reason = why.why();
        code = why.code();
    };
    dlock::lock lock(client, "lost", how);
    CHECK(lock.try_lock());
    const std::uint64_t granted = lock.fence();
    for (int i = 0; i < 1000 && code == 0; i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(code == DLOCK_ELOST && !lock.held());
    CHECK(name == "lost" && fence == granted && fence > 0 && reason == DLOCK_LOSS_FIXED_END);
    try {
        lock.release();
        fail("released what was not held");
    } catch (const dlock::error &why) {
        CHECK(why.code() == DLOCK_ELOST);
    }
}

int main() {
    const char *base = std::getenv("DLOCK_TEST_DIR");
    std::string folder = std::string(base ? base : "/tmp") + "/dlock-cxx.XXXXXX";
    CHECK(mkdtemp(&folder[0]));
    guards("file:" + folder);
    both_at_once("file:" + folder);
    errors("file:" + folder);
    losses_are_told("file:" + folder);
    CHECK(std::system(("rm -rf '" + folder + "'").c_str()) == 0);
    return 0;
}
