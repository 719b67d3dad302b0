/* What the thread sanitizer has to be told about threads that are fibers, and about mutexes that are none of its own.
 * Nothing in builds without it, where the files that include this are not instrumented either: what they do to their own
 * data, which all fibers share, is no race. */
#ifndef DLOCK_TESTS_SUPPORT_TSAN_H
#define DLOCK_TESTS_SUPPORT_TSAN_H

#ifdef DLOCK_TEST_TSAN
#include <sanitizer/tsan_interface.h>
void __tsan_ignore_thread_begin(void);
void __tsan_ignore_thread_end(void);
#else
#define __tsan_get_current_fiber() NULL
#define __tsan_create_fiber(flags) NULL
#define __tsan_destroy_fiber(fiber) ((void)0)
#define __tsan_switch_to_fiber(fiber, flags) ((void)0)
#define __tsan_mutex_create(mutex, flags) ((void)0)
#define __tsan_mutex_destroy(mutex, flags) ((void)0)
#define __tsan_mutex_pre_lock(mutex, flags) ((void)0)
#define __tsan_mutex_post_lock(mutex, flags, recursion) ((void)0)
#define __tsan_mutex_pre_unlock(mutex, flags) ((void)0)
#define __tsan_mutex_post_unlock(mutex, flags) ((void)0)
#define __tsan_acquire(address) ((void)0)
#define __tsan_release(address) ((void)0)
#define __tsan_ignore_thread_begin() ((void)0)
#define __tsan_ignore_thread_end() ((void)0)
#endif

#endif
