/* dlock for C++11 and later: clients and locks that release their resources by themselves, and that std::unique_lock,
 * std::lock_guard, std::scoped_lock and std::lock take like any mutex. Header-only, over <dlock/dlock.h>; link
 * libdlock.
 *
 * SPDX-License-Identifier: MIT
 *
 *     dlock::client client("redis://localhost");
 *     dlock::lock nightly(client, "nightly");
 *     std::unique_lock<dlock::lock> guard(nightly, std::chrono::seconds(5));
 *     if (guard) run_the_job(nightly.fence());
 *
 * dlock.h says what a call promises and how it may fail. Here every error code except "busy" and "timed out" is thrown
 * as a dlock::error; so is DLOCK_ENOTREADY, since a server that grants nothing yet has not told whether the lock is
 * held. A grant may end before its release: check held(), set an on_lost, pass fence() to the protected resource. */
#ifndef DLOCK_DLOCK_HPP
#define DLOCK_DLOCK_HPP

#include <dlock/dlock.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace dlock {

/* The exception that a failed call throws; what() is the library's message. */
class error : public std::runtime_error {
  public:
    /* From the error of a call of the library. */
    explicit error(const dlock_error &from) : std::runtime_error(from.message), code_(from.code) {}
    /* The error code: DLOCK_EUNAVAILABLE, DLOCK_ELOST, … */
    int code() const noexcept { return code_; }

  private:
    int code_;
};

/* What an on_lost gets: the loss of one grant. */
class lost : public error {
  public:
    /* From the arguments of a dlock_callback. */
    lost(const dlock_error &from, dlock_lock *lock)
        : error(from), name_(dlock_name(lock)), fence_(dlock_fence(lock)),
          why_(static_cast<dlock_loss>(dlock_lost(lock, nullptr))) {}
    /* The lock's name. */
    const std::string &name() const noexcept { return name_; }
    /* The fence of the lost grant. */
    std::uint64_t fence() const noexcept { return fence_; }
    /* DLOCK_LOSS_EXPIRED, …; what() says more. */
    dlock_loss why() const noexcept { return why_; }

  private:
    std::string name_;
    std::uint64_t fence_;
    dlock_loss why_;
};

namespace detail {
inline void check(int rc, const dlock_error &err) {
    if (rc != DLOCK_OK) throw error(err);
}
/* Milliseconds, rounded up, so that a wait of 1 us is a wait; at most what the library takes; 0 for negative times. */
template <class Rep, class Period> std::int64_t to_ms(const std::chrono::duration<Rep, Period> &time) {
    if (time <= time.zero()) return 0;
    if (time >= std::chrono::hours(24 * 365 * 100)) return std::int64_t(24) * 365 * 100 * 3600 * 1000;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time);
    return std::int64_t(ms.count()) + (ms < time ? 1 : 0);
}
} // namespace detail

/* How to open a client; see dlock_client_options. */
struct client_options {
    std::uint32_t flags = 0; /* DLOCK_CLIENT_…; with DLOCK_CLIENT_LAZY a program starts while its server is down */
    std::function<void(int level, const char *message)> log; /* as there; must not throw */
    const char *label = nullptr;                             /* as there */
};

/* A client of one server. Movable. Need not outlive its locks: afterwards their calls fail with DLOCK_ECANCELED.
 * Thread-safe, as dlock_client is. */
class client {
  public:
    /* Connects, unless that is left to the first operation; blocks up to the URI's `timeout`. Throws dlock::error. */
    explicit client(const std::string &uri, client_options how = client_options())
        : handle_(nullptr, closer(std::move(how.log))) {
        dlock_client_options raw = DLOCK_CLIENT_OPTIONS_INIT;
        raw.flags = how.flags;
        raw.label = how.label;
        if (*handle_.get_deleter().log) {
            raw.log = &closer::tell;
            raw.log_arg = handle_.get_deleter().log.get();
        }
        dlock_error err;
        dlock_client *opened = nullptr;
        detail::check(dlock_open(uri.c_str(), &raw, &opened, &err), err);
        handle_.reset(opened);
    }
    /* As dlock_client_stop: ends the waits, now and later, and keeps what is held. */
    void stop() noexcept { (void)dlock_client_stop(get()); }
    /* As dlock_close. No other thread may use this object meanwhile; its locks may be in use. */
    void close() noexcept { handle_.reset(); }
    /* The handle for the functions of dlock.h; it stays this object's. NULL after close(). */
    dlock_client *get() const noexcept { return handle_.get(); }

  private:
    struct closer { /* has the log, which the library uses until the client is closed */
        using function = std::function<void(int, const char *)>;
        explicit closer(function to) : log(new function(std::move(to))) {}
        void operator()(dlock_client *client) const noexcept { dlock_close(client); }
        static void tell(int level, const char *message, void *arg) { (*static_cast<function *>(arg))(level, message); }
        std::unique_ptr<function> log;
    };
    std::unique_ptr<dlock_client, closer> handle_;
};

/* How to hold the lock; see dlock_options. */
struct options {
    dlock_mode mode = DLOCK_EXCLUSIVE;         /* how many may hold it at the same time */
    dlock_owner owner = DLOCK_OWNER_THREAD;    /* who owns the grant */
    std::uint32_t limit = 0;                   /* permits: how many there are */
    std::uint32_t flags = 0;                   /* DLOCK_FIXED_LEASE, DLOCK_NO_REENTRY */
    std::chrono::milliseconds lease{0};        /* 0: the URI's lease */
    std::function<void(const lost &)> on_lost; /* runs on the client's worker thread; must not throw */
};

/* A lock for a name. It is Lockable and TimedLockable, and owned by one thread at a time, as a std::recursive_mutex
 * (with DLOCK_OWNER_THREAD). Movable while it is not held or waited for. Programs call it dlock::lock; the class has
 * another name since it has a member lock(). */
class mutex {
  public:
    /* Makes the lock's handle, without talking to a server. Throws dlock::error (DLOCK_EINVAL, DLOCK_ENOTSUP). */
    mutex(const client &in, const std::string &name, options how = options())
        : on_lost_(new callback(std::move(how.on_lost))) {
        dlock_options raw = DLOCK_OPTIONS_INIT;
        raw.mode = how.mode;
        raw.owner = how.owner;
        raw.limit = how.limit;
        raw.flags = how.flags;
        raw.lease_ms = how.lease.count();
        if (*on_lost_) {
            raw.on_lost = &mutex::tell;
            raw.on_lost_arg = on_lost_.get();
        }
        dlock_error err;
        dlock_lock *made = nullptr;
        detail::check(dlock_new(in.get(), name.c_str(), &raw, &made, &err), err);
        handle_.reset(made);
    }

    /* Acquires the lock, waiting without a limit. Throws dlock::error. */
    void lock() { acquire(-1); }
    /* Tries to acquire with one request. False: another owner holds the lock. Throws dlock::error. */
    bool try_lock() { return acquire(0); }
    /* Acquires the lock, waiting up to `time`. False: another owner held it until then. Throws dlock::error. */
    template <class Rep, class Period> bool try_lock_for(const std::chrono::duration<Rep, Period> &time) {
        return acquire(detail::to_ms(time));
    }
    /* As try_lock_for, until a point in time. */
    template <class Clock, class Duration> bool try_lock_until(const std::chrono::time_point<Clock, Duration> &end) {
        return try_lock_for(end - Clock::now());
    }
    /* Releases the lock. Throws nothing, since destructors call it: see dlock::release(). If the caller does not hold
     * it (DLOCK_EOWNER) that ends the program, since the lock of another thread would stay held for good. With
     * DLOCK_OWNER_HANDLE a guard may move from one thread to another. */
    void unlock() noexcept {
        dlock_error err;
        const int rc = dlock_release(get(), &err);
        if (rc == DLOCK_EOWNER) detail::check(rc, err); /* std::terminate shows the message */
    }
    /* Releases the lock. Throws dlock::error: with DLOCK_ELOST the work done may have overlapped with that of the next
     * owner. */
    void release() {
        dlock_error err;
        detail::check(dlock_release(get(), &err), err);
    }

    /* As dlock_downgrade: turns a writer into a reader. Throws dlock::error. */
    void downgrade() {
        dlock_error err;
        detail::check(dlock_downgrade(get(), &err), err);
    }
    /* As dlock_extend, for a lock with DLOCK_FIXED_LEASE: the grant ends `lease` from now; 0: its own lease from now.
     * Throws dlock::error. */
    void extend(std::chrono::milliseconds lease = std::chrono::milliseconds(0)) {
        dlock_error err;
        detail::check(dlock_extend(get(), lease.count(), &err), err);
    }
    /* As dlock_held: true while the caller holds the lock; cheap enough for the condition of a loop. */
    bool held() const noexcept { return dlock_held(get()); }
    /* As dlock_fence: the number to pass to what the lock protects; 0 when not held. */
    std::uint64_t fence() const noexcept { return dlock_fence(get()); }
    /* As dlock_remaining_ms; std::chrono::milliseconds::max() where the grant ends only with this process. */
    std::chrono::milliseconds remaining() const noexcept {
        const std::int64_t ms = dlock_remaining_ms(get());
        return ms == DLOCK_FOREVER ? std::chrono::milliseconds::max() : std::chrono::milliseconds(ms);
    }
    /* As dlock_cancel: ends the waits in progress, which throw DLOCK_ECANCELED. */
    void cancel() noexcept { (void)dlock_cancel(get()); }
    /* False if the server, when it was last asked for this name, granted nothing to anybody yet (DLOCK_ENOTREADY). */
    bool ready() const noexcept { return dlock_ready(get(), nullptr) != DLOCK_ENOTREADY; }
    /* The handle for the functions of dlock.h; it stays this object's. */
    dlock_lock *get() const noexcept { return handle_.get(); }

  private:
    using callback = std::function<void(const lost &)>;
    struct freer {
        void operator()(dlock_lock *lock) const noexcept { dlock_free(lock); }
    };

    static void tell(dlock_lock *lock, const dlock_error *err, void *arg) {
        (*static_cast<callback *>(arg))(lost(*err, lock));
    }

    bool acquire(std::int64_t timeout_ms) {
        dlock_error err;
        const int rc = dlock_acquire(get(), timeout_ms, &err);
        if (rc == DLOCK_EBUSY || rc == DLOCK_ETIMEDOUT) return false;
        detail::check(rc, err);
        return true;
    }

    std::unique_ptr<callback> on_lost_; /* declared before handle_: used by the library until the handle is freed */
    std::unique_ptr<dlock_lock, freer> handle_;
};
/* The name that programs use. */
using lock = mutex;

/* A lock for readers and a writer, for std::shared_lock and std::unique_lock: a std::shared_timed_mutex, whose owners
 * are threads. What it has of dlock::lock other than the locking, such as held() and release(), is about the caller's
 * grant, exclusive or shared. A reader cannot become a writer (DLOCK_EDEADLK); after downgrade() use unlock_shared(). */
class shared_mutex : public mutex {
  public:
    /* As that of dlock::lock; the mode in `how` does not count. */
    shared_mutex(const client &in, const std::string &name, const options &how = options())
        : mutex(in, name, with_mode(how, DLOCK_EXCLUSIVE)), reader_(in, name, with_mode(how, DLOCK_SHARED)) {}

    /* As lock(), for a reader. */
    void lock_shared() { reader_.lock(); }
    /* See lock_shared(). */
    bool try_lock_shared() { return reader_.try_lock(); }
    /* See lock_shared(). */
    template <class Rep, class Period> bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &time) {
        return reader_.try_lock_for(time);
    }
    /* See lock_shared(). */
    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &end) {
        return reader_.try_lock_until(end);
    }
    /* See lock_shared(). */
    void unlock_shared() noexcept { reader_.unlock(); }
    /* Ends the waits of readers and writers. */
    void cancel() noexcept {
        mutex::cancel();
        reader_.cancel();
    }

  private:
    static options with_mode(options how, dlock_mode mode) {
        how.mode = mode;
        how.owner = DLOCK_OWNER_THREAD;
        return how;
    }

    mutex reader_;
};

namespace detail {
inline mutex *lock_any(const std::vector<mutex *> &locks, std::int64_t timeout_ms) {
    std::vector<dlock_lock *> handles;
    for (const mutex *one : locks) handles.push_back(one->get());
    dlock_error err;
    std::size_t which = 0;
    const int rc = dlock_acquire_any(handles.data(), handles.size(), timeout_ms, &which, &err);
    if (rc == DLOCK_EBUSY || rc == DLOCK_ETIMEDOUT) return nullptr;
    check(rc, err);
    return locks[which];
}
} // namespace detail

/* As dlock_acquire_any: acquires whichever of the locks, all of one client, is free first, waiting without a limit, and
 * returns it: std::unique_lock<dlock::lock> guard(*dlock::lock_any(slots), std::adopt_lock). Throws dlock::error. */
inline mutex *lock_any(const std::vector<mutex *> &locks) {
    return detail::lock_any(locks, -1);
}
/* The same, waiting up to `time`; 0 tries once. NULL: other owners held them until then. Throws dlock::error. */
template <class Rep, class Period>
mutex *try_lock_any_for(const std::vector<mutex *> &locks, const std::chrono::duration<Rep, Period> &time) {
    return detail::lock_any(locks, detail::to_ms(time));
}

/* Unlocks `guard`, a std::unique_lock or std::shared_lock, as the release() of its lock: throws dlock::error. With
 * DLOCK_ELOST the work done may have overlapped with that of the next owner. The guard owns nothing afterwards. */
template <class Guard> void release(Guard &guard) {
    if (auto *const owned = guard.release()) owned->release();
}

} // namespace dlock
#endif
