/* How a stream's operations are queued, run and waited for. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "heap.h"
#include "lock.h"
#include "record.h"
#include "settings.h"
#include "stream.h"

/* ---- operations ---- */

static struct soft_operation *spare_operations;

struct soft_operation *soft_operation_new(void (*run)(struct soft_operation *))
{
	struct soft_operation *operation = spare_operations;
	if (operation)
		spare_operations = operation->next;
	else
		operation = soft_records(1, sizeof *operation);
	memset(operation, 0, sizeof *operation);
	operation->run = run;
	return operation;
}

static void discard(struct soft_operation *operation)
{
	operation->next = spare_operations;
	spare_operations = operation;
}

/* ---- waiting a little without sleeping ---- */

enum { SPIN_NS = 20000 };
static _Atomic int spinning;

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static int processors(void)
{
	static _Atomic int count;
	int n = atomic_load_explicit(&count, memory_order_relaxed);
	if (!n) {
		n = (int)sysconf(_SC_NPROCESSORS_ONLN);
		atomic_store_explicit(&count, n, memory_order_relaxed);
	}
	return n;
}

/* Looks for at most SPIN_NS whether the condition came true; one thread at a time does so, and none where there is one processor.
 * A hand-over between threads then costs less than a microsecond instead of two wake-ups by the kernel. */
#define SPIN_UNTIL(condition) \
	do { \
		if (processors() > 1 && atomic_fetch_add(&spinning, 1) == 0) { \
			int64_t end_ = now_ns() + SPIN_NS; \
			do { \
				for (int i_ = 0; i_ < 32 && !(condition); i_++) \
					relax(); \
			} while (!(condition) && now_ns() < end_); \
			atomic_fetch_sub(&spinning, 1); \
		} else if (processors() > 1) { \
			atomic_fetch_sub(&spinning, 1); \
		} \
	} while (0)

/* ---- the queue ---- */

void soft_stream_append(struct soft_stream *stream, struct soft_operation *operation)
{
	operation->sequence = ++stream->last;
	operation->next = NULL;
	if (stream->newest)
		stream->newest->next = operation;
	else
		stream->first = operation;
	stream->newest = operation;
	atomic_fetch_add_explicit(&stream->queued, 1, memory_order_release);
}

static void end_limbo(struct soft_stream *stream)
{
	while (stream->limbo && stream->limbo->sequence <= stream->done) {
		struct soft_limbo *limbo = stream->limbo;
		stream->limbo = limbo->next;
		if (!stream->limbo)
			stream->limbo_newest = NULL;
		soft_block_end(limbo->block);
		free(limbo);
	}
}

void soft_stream_end_block(struct soft_stream *stream, uint64_t sequence, struct soft_block *block)
{
	if (stream->done >= sequence) {
		soft_block_end(block);
		return;
	}
	struct soft_limbo *limbo = soft_records(1, sizeof *limbo);
	*limbo = (struct soft_limbo){ NULL, block, sequence };
	/* Mostly the highest number of all, but a piece freed earlier may be given up later. */
	struct soft_limbo **at = &stream->limbo;
	if (stream->limbo_newest && stream->limbo_newest->sequence <= sequence)
		at = &stream->limbo_newest->next;
	while (*at && (*at)->sequence <= sequence)
		at = &(*at)->next;
	limbo->next = *at;
	*at = limbo;
	if (!limbo->next)
		stream->limbo_newest = limbo;
}

void soft_stream_settle(struct soft_stream *stream)
{
	if (stream->running)
		return;
	uint64_t done = stream->first ? stream->first->sequence - 1 : stream->last;
	if (done != stream->done) {
		atomic_store_explicit(&stream->done, done, memory_order_release);
		if (stream->limbo)
			end_limbo(stream);
		if (stream->waiters)
			pthread_cond_broadcast(&stream->progress);
	}
	if (stream->closed && done == stream->last)
		soft_stream_drop_edges(stream); /* nobody can wait for it any more; and streams that followed each other would never go */
}

/* ---- running operations ---- */

static void sleep_us(long long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };
	while (nanosleep(&t, &t))
		;
}

static void delay(void)
{
	static _Atomic uint64_t state = 88172645463325252ull;
	long long us = soft_setting(&soft_settings.delay_us), jitter = soft_setting(&soft_settings.jitter_us);
	if (jitter > 0) {
		uint64_t x = atomic_fetch_add_explicit(&state, 0x9e3779b97f4a7c15ull, memory_order_relaxed); /* splitmix64 */
		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
		x = (x ^ x >> 27) * 0x94d049bb133111ebull;
		us += (long long)((x ^ x >> 31) % (uint64_t)(jitter + 1));
	}
	if (us > 0)
		sleep_us(us);
}

/* Runs the first operation. Needs: none is running, and there is one. */
static void step(struct soft_stream *stream)
{
	struct soft_operation *operation = stream->first;
	stream->first = operation->next;
	if (!stream->first)
		stream->newest = NULL;
	atomic_fetch_sub_explicit(&stream->queued, 1, memory_order_relaxed);
	stream->running = 1;
	soft_unlock();
	if (!operation->internal)
		delay();
	operation->run(operation);
	soft_lock();
	stream->running = 0;
	discard(operation);
	soft_stream_settle(stream);
}

static void *work(void *argument)
{
	struct soft_stream *stream = argument;
	soft_lock();
	for (;;) {
		while (stream->first && !stream->running)
			step(stream);
		if (stream->closed && !stream->first && !stream->running)
			break;
		if (!stream->closed && !stream->first) {
			soft_unlock();
			SPIN_UNTIL(atomic_load_explicit(&stream->queued, memory_order_acquire));
			soft_lock();
			if (stream->first && !stream->running)
				continue;
		}
		if (stream->closed && !stream->first && !stream->running)
			break;
		stream->asleep = 1;
		pthread_cond_wait(&stream->work, &soft_mutex);
		stream->asleep = 0;
	}
	stream->worker = 0;
	soft_stream_release(stream);
	soft_unlock();
	return NULL;
}

static int start_worker(struct soft_stream *stream)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;
	if (pthread_attr_init(&attributes))
		return -1;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	/* The process's signals are for its own threads: a Go or Python handler must not run on ours. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&thread, &attributes, work, stream);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (failed)
		return -1;
	stream->worker = 1;
	stream->references++;
	return 0;
}

void soft_stream_wake(struct soft_stream *stream)
{
	if (stream->asleep) {
		pthread_cond_signal(&stream->work);
	} else if (!stream->worker && start_worker(stream)) {
		/* No thread to be had: the caller does the work. */
		while (stream->first && !stream->running)
			step(stream);
	}
}

int soft_stream_wait_for(struct soft_stream *stream, uint64_t sequence, uint64_t nanoseconds)
{
	struct timespec end;
	stream->references++;
	if (stream->done < sequence && stream->first && !stream->running)
		soft_stream_wake(stream);
	soft_deadline(&end, nanoseconds);
	for (int late = !nanoseconds; !late && stream->done < sequence;) {
		stream->waiters++;
		late = pthread_cond_timedwait(&stream->progress, &soft_mutex, &end) != 0;
		stream->waiters--;
	}
	int reached = stream->done >= sequence;
	soft_stream_release(stream);
	return reached;
}

void soft_stream_wait(struct soft_stream *stream, uint64_t sequence)
{
	int spun = 0;
	stream->references++;
	while (stream->done < sequence) {
		if (stream->first && !stream->running) {
			if (!stream->first->worker_only) {
				step(stream);
				continue;
			}
			soft_stream_wake(stream);
		}
		if (!spun) {
			spun = 1;
			soft_unlock();
			SPIN_UNTIL(atomic_load_explicit(&stream->done, memory_order_acquire) >= sequence);
			soft_lock();
			continue;
		}
		stream->waiters++;
		pthread_cond_wait(&stream->progress, &soft_mutex);
		stream->waiters--;
	}
	if (stream->first && !stream->running)
		soft_stream_wake(stream);
	soft_stream_release(stream);
}
