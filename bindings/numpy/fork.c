/* A forked child goes on counting: its books begin as its parent's, since it has all of its parent's arrays, which are marked as inherited. */
#include "np.h"
#include "numpy_books.h"
#include <pthread.h>

/* Locked across the fork: the child's copy is whole, and its lock has no owner that does not exist there. */
static void before(void) { tm_books_lock(&np_the_books.memory); }
static void in_parent(void) { tm_books_unlock(&np_the_books.memory); }

static void in_child(void)
{
	np_the_books.inherited = np_the_books.memory.in_use;
	np_the_books.inherited_count = np_the_books.memory.allocate_count - np_the_books.memory.free_count;
	np_the_books.forked_at = np_the_books.memory.sequence;
	tm_books_unlock(&np_the_books.memory);
}

int np_fork_init(void)
{
	if (!pthread_atfork(before, in_parent, in_child)) return 0;
	PyErr_SetString(PyExc_ImportError, "tack_memory: pthread_atfork failed: no memory");
	return -1;
}
