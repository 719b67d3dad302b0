/* dlock.hpp on file:, in a separate folder: the standard library's requirements for a mutex, and our additions. */
#include <dlock/dlock.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#if __cplusplus >= 201402L
#include <shared_mutex>
#endif
#include <thread>
#include <type_traits>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

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
}

/* In a child, since it is the end of it. */
static void a_guard_of_another_thread(const std::string &uri) {
    const pid_t child = fork();
    if (child == 0) {
        std::set_terminate([] {
            try {
                throw;
            } catch (const dlock::error &why) {
                std::_Exit(why.code() == DLOCK_EOWNER ? 42 : 2);
            }
        });
        dlock::client client(uri);
        dlock::lock lock(client, "thread");
        std::unique_lock<dlock::lock> guard(lock);
        std::thread([&guard] { std::unique_lock<dlock::lock> taken(std::move(guard)); }).join();
        std::_Exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);

    dlock::client client(uri);
    dlock::options how;
    how.owner = DLOCK_OWNER_HANDLE;
    dlock::lock lock(client, "thread", how);
    std::unique_lock<dlock::lock> guard(lock);
    std::thread([&guard] { std::unique_lock<dlock::lock> taken(std::move(guard)); }).join();
    CHECK(!lock.held());
}

template <class Guard, class Lock> static void lost_before_its_release(dlock::client &client, Lock &lock) {
    Guard guard(lock);
    CHECK(dlock_break(client.get(), "broken", nullptr) == DLOCK_OK);
    try {
        dlock::release(guard);
        fail("released what was lost");
    } catch (const dlock::error &why) {
        CHECK(why.code() == DLOCK_ELOST);
    }
    CHECK(!guard.owns_lock());
    Guard again(lock);
    dlock::release(again);
    CHECK(!again.owns_lock() && !lock.held());
    dlock::release(again); /* has no lock */
}

static void release_of_a_guard(const std::string &uri) {
    dlock::client client(uri);
    dlock::lock lock(client, "broken");
    lost_before_its_release<std::unique_lock<dlock::lock>>(client, lock);
#if __cplusplus >= 201402L
    dlock::shared_mutex both(client, "broken");
    lost_before_its_release<std::unique_lock<dlock::shared_mutex>>(client, both);
    lost_before_its_release<std::shared_lock<dlock::shared_mutex>>(client, both);
#endif
}

static void readers_and_writers(const std::string &uri) {
    dlock::client here(uri), there(uri);
    dlock::shared_mutex mine(here, "both"), theirs(there, "both");
    mine.lock_shared();
    CHECK(theirs.try_lock_shared_for(std::chrono::seconds(5)) && theirs.held() && theirs.fence() > 0);
    try {
        theirs.lock();
        fail("a reader became a writer");
    } catch (const dlock::error &why) {
        CHECK(why.code() == DLOCK_EDEADLK);
    }
    theirs.unlock_shared();
    CHECK(!theirs.held() && !theirs.try_lock());
    mine.unlock_shared();
    CHECK(theirs.try_lock_for(std::chrono::seconds(5)));
    CHECK(!mine.try_lock_shared() && !mine.try_lock());
    theirs.downgrade();
    CHECK(mine.try_lock_shared_until(std::chrono::steady_clock::now() + std::chrono::seconds(5)));
    theirs.unlock_shared();
    mine.unlock_shared();
    CHECK(theirs.try_lock());
    theirs.unlock();
#if __cplusplus >= 201402L
    std::shared_lock<dlock::shared_mutex> guard(mine, std::chrono::seconds(5));
    CHECK(guard && !theirs.try_lock());
#endif
}

static void options_of_clients(const std::string &uri) {
    dlock::client_options how;
    how.flags = DLOCK_CLIENT_LAZY | DLOCK_CLIENT_MANUAL;
    dlock::client nowhere("file:/dev/null/nowhere", how);
    dlock::lock never(nowhere, "never");
    try {
        CHECK(!never.try_lock());
        fail("took a lock without a server");
    } catch (const dlock::error &why) {
        CHECK(why.code() == DLOCK_EINVAL);
    }

    int told = 0;
    dlock::client manual(uri, how);
    dlock::options fixed;
    fixed.lease = std::chrono::milliseconds(200);
    fixed.flags = DLOCK_FIXED_LEASE;
    fixed.on_lost = [&told](const dlock::error &) { told++; };
    dlock::lock lock(manual, "manual", fixed);
    CHECK(lock.try_lock());
    while (lock.held()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(told == 0);
    while (told == 0) dlock_client_dispatch(manual.get());

    manual.stop();
    try {
        dlock::lock stopped(manual, "stopped");
        stopped.lock();
        fail("waited for a lock of a stopped client");
    } catch (const dlock::error &why) {
        CHECK(why.code() == DLOCK_ECANCELED);
    }
    manual.close();
    CHECK(!manual.get());
    try {
        CHECK(!lock.try_lock());
        fail("took a lock of a closed client");
    } catch (const dlock::error &why) {
        CHECK(why.code() == DLOCK_ECANCELED);
    }
}

/* A server that fails half of the time: renewals fail, too. A client that is moved keeps its log. */
static void the_log_of_a_client() {
    std::atomic<int> level{-1};
    dlock::client_options how;
    how.log = [&level](int now, const char *message) {
        if (std::string(message).find("renewal") != std::string::npos) level = now;
    };
    try {
        dlock::client client("mem:cxx?fail=0.5&lease=300ms&timeout=100ms", how);
        dlock::client moved("mem:other");
        moved = std::move(client);
        while (level < 0) {
            try {
                dlock::lock lock(moved, "logged");
                if (lock.try_lock_for(std::chrono::seconds(5))) std::this_thread::sleep_for(std::chrono::seconds(1));
                lock.release();
            } catch (const dlock::error &) { /* as it does half of the time */
            }
        }
        CHECK(level == DLOCK_LOG_WARN);
    } catch (const dlock::error &why) {
        CHECK(why.code() == DLOCK_ENOBACKEND); /* built without mem: */
    }
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

static void any_of_two(const std::string &uri) {
    dlock::client here(uri), there(uri);
    dlock::lock one(here, "one"), two(here, "two"), theirs(there, "one"), too(there, "two");
    CHECK(theirs.try_lock());
    {
        std::unique_lock<dlock::lock> guard(*dlock::lock_any({&one, &two}), std::adopt_lock);
        CHECK(two.held() && !one.held());
        CHECK(!too.try_lock());
    }
    CHECK(too.try_lock());
    CHECK(dlock::try_lock_any_for({&one, &two}, std::chrono::milliseconds(20)) == nullptr);
    try {
        dlock::lock_any({&one, &theirs});
        fail("took locks of two clients");
    } catch (const dlock::error &why) {
        CHECK(why.code() == DLOCK_EINVAL);
    }
}

int main() {
    const char *base = std::getenv("DLOCK_TEST_DIR");
    std::string folder = std::string(base ? base : "/tmp") + "/dlock-cxx.XXXXXX";
    CHECK(mkdtemp(&folder[0]));
    a_guard_of_another_thread("file:" + folder);
    guards("file:" + folder);
    both_at_once("file:" + folder);
    any_of_two("file:" + folder);
    errors("file:" + folder);
    losses_are_told("file:" + folder);
    release_of_a_guard("file:" + folder);
    readers_and_writers("file:" + folder);
    options_of_clients("file:" + folder);
    the_log_of_a_client();
    CHECK(std::system(("rm -rf '" + folder + "'").c_str()) == 0);
    return 0;
}
