/* A small harness: each test runs in a process of its own, which loads the library by its path, as a client does.
 * A folder here has the tests of one vendor's ABI, and a client.h that knows its functions. */
#ifndef SOFT_TESTS_HARNESS_H
#define SOFT_TESTS_HARNESS_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The control functions (engine/control.h) of the library under test, and the way to its other functions. */
struct control {
	int (*set)(const char *key, long long value);
	long long (*get)(const char *key);
	int (*fail)(const char *function, unsigned long nth, int code);
	unsigned long (*calls)(const char *function);
	void (*reset)(void);
};
extern struct control soft;
extern void *library;

void open_library(void);            /* dlopen, and the control functions; no call of the vendor's */
void *symbol(const char *name);     /* fails the test where the library does not export it */

/* Keeps a stream busy until the gate is opened, however slow the machine is. */
struct gate {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int open, entered;
};
void make_gate(struct gate *gate);
void stand_at_gate(void *gate);                      /* what a test puts on a stream: returns when the gate is open */
void open_gate(struct gate *gate);
void wait_entered(struct gate *gate);                /* until the stream is at the gate */

/* Whether the host can read a byte there. */
int readable(uint64_t address);
unsigned long mappings(void);      /* of this process */

struct test {
	const char *name;
	void (*run)(void);
	const struct test *next;
};
void register_test(struct test *test);
#define TEST(name_) \
	static void test_##name_(void); \
	__attribute__((constructor)) static void register_##name_(void) \
	{ \
		static struct test test = { #name_, test_##name_, NULL }; \
		register_test(&test); \
	} \
	static void test_##name_(void)

__attribute__((noreturn, format(printf, 3, 4))) void failed(const char *file, int line, const char *format, ...);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			failed(__FILE__, __LINE__, "not so: %s", #condition); \
	} while (0)
#define EQUAL(got, want) \
	do { \
		long long got_ = (long long)(got), want_ = (long long)(want); \
		if (got_ != want_) \
			failed(__FILE__, __LINE__, "%s is %lld, not %lld (%s)", #got, got_, want_, #want); \
	} while (0)
#define RETURNS(code, call) \
	do { \
		int code_ = (int)(call); \
		if (code_ != (int)(code)) \
			failed(__FILE__, __LINE__, "%s returned %d, not %d (%s)", #call, code_, (int)(code), #code); \
	} while (0)
#define OK(call) RETURNS(0, call)

#define MIB (1024ull * 1024)

#endif
