#include "harness.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>

struct control soft;
void *library;
static const char *path;
static const struct test *tests, **last_test = &tests;

void register_test(struct test *test)
{
	*last_test = test;
	last_test = &test->next;
}

void failed(const char *file, int line, const char *format, ...)
{
	va_list arguments;
	fprintf(stderr, "%s:%d: ", file, line);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	fflush(stderr);
	_exit(1);
}

void *symbol(const char *name)
{
	void *p = dlsym(library, name);
	if (!p)
		failed(__FILE__, __LINE__, "the library does not export %s", name);
	return p;
}

void open_library(void)
{
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		failed(__FILE__, __LINE__, "%s", dlerror());
	soft.set = (int (*)(const char *, long long))symbol("tmsoft_set");
	soft.get = (long long (*)(const char *))symbol("tmsoft_get");
	soft.fail = (int (*)(const char *, unsigned long, int))symbol("tmsoft_fail");
	soft.calls = (unsigned long (*)(const char *))symbol("tmsoft_calls");
	soft.reset = (void (*)(void))symbol("tmsoft_reset");
}

void stand_at_gate(void *argument)
{
	struct gate *gate = argument;
	pthread_mutex_lock(&gate->mutex);
	gate->entered = 1;
	pthread_cond_broadcast(&gate->changed);
	while (!gate->open)
		pthread_cond_wait(&gate->changed, &gate->mutex);
	pthread_mutex_unlock(&gate->mutex);
}

void make_gate(struct gate *gate)
{
	pthread_mutex_init(&gate->mutex, NULL);
	pthread_cond_init(&gate->changed, NULL);
	gate->open = gate->entered = 0;
}

void open_gate(struct gate *gate)
{
	pthread_mutex_lock(&gate->mutex);
	gate->open = 1;
	pthread_cond_broadcast(&gate->changed);
	pthread_mutex_unlock(&gate->mutex);
}

void wait_entered(struct gate *gate)
{
	pthread_mutex_lock(&gate->mutex);
	while (!gate->entered)
		pthread_cond_wait(&gate->changed, &gate->mutex);
	pthread_mutex_unlock(&gate->mutex);
}

/* By a system call that reads there: the kernel answers EFAULT, and no signal handler is needed, which sanitizers have their own ideas about. */
int readable(uint64_t address)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	ssize_t written = write(ends[1], (const void *)(uintptr_t)address, 1);
	CHECK(written == 1 || errno == EFAULT);
	close(ends[0]);
	close(ends[1]);
	return written == 1;
}

unsigned long mappings(void)
{
	unsigned long lines = 0;
	FILE *file = fopen("/proc/self/maps", "r");
	CHECK(file);
	for (int c; (c = getc(file)) != EOF;)
		lines += c == '\n';
	fclose(file);
	return lines;
}

enum { SECONDS_A_TEST = 300 };

/* usage: softdriver_tests LIBRARY [TEST...] */
int main(int count, char **arguments)
{
	int ran = 0, bad = 0;
	if (count < 2)
		failed(__FILE__, __LINE__, "usage: %s LIBRARY [TEST...]", arguments[0]);
	path = arguments[1];
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (const struct test *test = tests; test; test = test->next) {
		int wanted = count == 2;
		for (int i = 2; i < count; i++)
			wanted |= !strcmp(arguments[i], test->name);
		if (!wanted)
			continue;
		ran++;
		pid_t child = fork();
		if (!child) {
			alarm(SECONDS_A_TEST); /* a test that hangs is a test that fails */
			test->run();
			exit(0); /* not _exit: leak checkers and the library's own ending belong to the test */
		}
		int status = 0;
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		int passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
		bad += !passed;
		if (WIFSIGNALED(status))
			printf("FAIL %s: %s\n", test->name, WTERMSIG(status) == SIGALRM ? "it hangs" : strsignal(WTERMSIG(status)));
		else
			printf("%s %s\n", passed ? "ok  " : "FAIL", test->name);
	}
	printf("%d tests, %d failed\n", ran, bad);
	return !ran || bad;
}
