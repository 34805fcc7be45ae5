/* What libfaketime lacks: waits of C11 threads that end by the false time of day, as librdkafka makes them.
 *
 * Without it such a wait compares a deadline of the false clock with the true one. With the clock set back each of them ends at once,
 * and the program is busy with nothing else. Here, as in the kernel, a wait ends when the clock that it was told shows its deadline,
 * also when somebody sets that clock meanwhile; half a second is how late it may notice. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <threads.h>
#include <time.h>

static const long long SECOND_NS = 1000000000LL, LOOK_NS = SECOND_NS / 2;

static long long ns(struct timespec at) { return at.tv_sec * SECOND_NS + at.tv_nsec; }

static long long clock_ns(clockid_t which) {
    struct timespec now;
    clock_gettime(which, &now);
    return ns(now);
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *deadline) {
    for (;;) {
        long long left = ns(*deadline) - clock_ns(CLOCK_REALTIME);
        if (left <= 0) return thrd_timedout;
        long long until = clock_ns(CLOCK_MONOTONIC) + (left < LOOK_NS ? left : LOOK_NS);
        struct timespec look = {until / SECOND_NS, until % SECOND_NS};
        int failed = pthread_cond_clockwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, CLOCK_MONOTONIC, &look);
        if (failed != ETIMEDOUT) return failed ? thrd_error : thrd_success;
    }
}
