/* tack_memory: events of memory, for C and C++.
 *
 * Be told when array memory is allocated, freed or moved: NumPy's arrays, device memory, and whatever other allocators tell of. Include this file behind Python.h, and get
 * the table of functions once, with the GIL:
 *
 *     const tack_memory_api *tack = tack_memory_import();    // NULL with an exception
 *     tack->set_event_hook(my_hook, my_data, &old_data);
 *
 * Compile with -I and what `python -c "import tack_memory; print(tack_memory.get_include())"` prints; there is nothing to link with.
 *
 * What every hook can rely on
 *
 *  - Order. The events of one address come in their order. Memory is told as new before its owner can use it, and as freed (or moved away) before its address can be given
 *    to somebody else: so a table of what lives, kept by address, is right at every moment.
 *  - The past. Memory that is older than a hook may end or move while it listens: a free of an unknown address is no error.
 *  - Figures first. The books (tack_memory.memory_info) have the change when its event comes.
 *  - No lock of tack_memory is held while a hook runs. It may allocate arrays, collect garbage, set and remove hooks, itself included.
 *  - No events of its own. Memory that a hook allocates is never told of, from its allocation to its free, wherever that happens: it is counted in
 *    tack_event_counts.suppressed. Other memory that ends or moves while a hook runs is told of when the hook has returned. (A hook with TACK_HOOK_NOGIL is told of what other hooks
 *    allocate; only while it runs, its own thread tells it nothing.)
 *  - The GIL is held, except for hooks that were added with TACK_HOOK_NOGIL. What happened on a thread without the GIL (spills of device memory, arrays that NumPy grows while it
 *    parses text) is told by the next thread that has it, in order, 65,536 events at most: what comes beyond that is lost, and counted in tack_event_counts.dropped.
 *  - An exception that was set before a hook is set after it. One that the hook sets goes to sys.unraisablehook, and after ten calls in a row that failed the
 *    hook is switched off, with one RuntimeWarning. KeyboardInterrupt is raised again in the main thread.
 */
#ifndef TACK_MEMORY_H
#define TACK_MEMORY_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The signature of NumPy's PyDataMem_SetEventHook (1.7 to 1.26), for code that was written for it:
 *
 *     hook(NULL, p, n, data)    n bytes were allocated at p
 *     hook(p, NULL, 0, data)    they were freed
 *     hook(p, q, n, data)       they are at q now, and n bytes; q may be p
 *
 * It gets the events of all domains. Two things differ from NumPy's, on purpose. Failed allocations are not told: NumPy's (p, NULL, n) for a failed realloc looks like a
 * free of memory that is still there. And a free is told before it is done, not after: else another thread may get the address, and be told first. */
typedef void (*tack_event_hook)(void *old, void *new_, size_t size, void *user_data);

enum tack_event_kind {
	TACK_NEW = 1, /* new_, new_size */
	TACK_FREE,    /* old, old_size */
	TACK_RENEW,   /* from old, old_size to new_, new_size: the memory lives on, elsewhere or with another size */
	TACK_FAIL     /* requested bytes could not be had; old stays as it was (NULL: there was none) */
};

enum tack_domain {
	TACK_NUMPY,  /* memory of NumPy's arrays, while tack_memory.numpy is installed */
	TACK_DEVICE, /* device memory: what tack_memory allocates or adopts on any of its devices, "cpu" included */
	TACK_PINNED, /* page-locked host memory; tack_memory itself has none to tell of */
	TACK_SHARED, /* memory that several processes map; tack_memory itself tells of its own shared arrays as TACK_NUMPY */
	TACK_DOMAINS
};
#define TACK_ALL_DOMAINS ((1u << TACK_DOMAINS) - 1)

/* Why, where the kind does not say it. */
enum tack_event_reason {
	TACK_PLAIN,
	TACK_ADOPT,  /* NEW: memory that somebody else allocated is tack_memory's from now on */
	TACK_SPILL,  /* RENEW: from the device to host memory: old is its address on the device, new_ that of the host copy */
	TACK_RESTORE /* RENEW: and back; the address on the device is mostly another one */
};

/* Device memory that is spilled has not ended: the buffer lives, and its bytes are in host memory. So spilling and restoring are RENEW, and the sum over what lives is what
 * the program would need without spilling (`footprint` of memory_info). To follow what is on the device, count SPILL as a loss and RESTORE as a gain. */
typedef struct tack_event {
	uint32_t size;      /* of this struct: later versions are longer */
	uint8_t kind;       /* enum tack_event_kind */
	uint8_t domain;     /* enum tack_domain */
	int16_t device;     /* number of the device (tack_memory_api.device_name); -1: host memory */
	uint64_t seq;       /* one event, one number; they rise along the events of one address */
	void *old, *new_;   /* NULL: none */
	size_t old_size, new_size, requested;
	uint64_t stream;    /* on which the memory is used first; 0: the device's own, or none */
	uint32_t site;      /* number of the line that allocated, where lines are recorded; else 0. Each domain counts its own */
	uint32_t thread;    /* the system's number of the thread that did it; 0: not known */
	uint32_t reason;    /* enum tack_event_reason */
	uint32_t reserved;
} tack_event;

enum tack_hook_flags {
	/* The hook may be called without the GIL, on any thread, by several at a time; then it must not touch Python. It is called at once where others have to wait for the GIL, except for
	 * device memory: that is told when a thread of Python has the GIL. */
	TACK_HOOK_NOGIL = 1
};

typedef struct tack_event_counts {
	uint64_t delivered;  /* calls of hooks */
	uint64_t suppressed; /* events of memory that hooks allocated */
	uint64_t dropped;    /* events that were lost because too many waited */
	uint64_t waiting;    /* events that wait */
} tack_event_counts;

/* The table. Functions are added at its end only: `size` says how much of it is there. Each is called with the GIL, unless it says otherwise. */
typedef struct tack_memory_api {
	uint32_t abi;  /* TACK_MEMORY_ABI */
	uint32_t size; /* of this struct, in bytes */

	/* Sets the hook with the signature of 2012, of which there is one; NULL: none. Returns the one before (NULL: none), and its user data in *old_data. To nest, set the two again when you
	 * are done, or give them to release_event_hook: where they came from Python, they hold a reference, which is yours now. A hook that cannot be set is NULL with an exception
	 * (MemoryError, or KeyboardInterrupt while the one before got what waited for it), and the one before stays: look at PyErr_Occurred where NULL matters. */
	tack_event_hook (*set_event_hook)(tack_event_hook hook, void *user_data, void **old_data);
	/* Gives back what set_event_hook returned and nobody will set again. */
	void (*release_event_hook)(tack_event_hook hook, void *user_data);

	/* Adds a hook for events of these domains (bits, 1 << TACK_NUMPY ...), with flags of enum tack_hook_flags. Any number may be there. The name is copied, for messages. Returns what
	 * removes it, never 0; or 0 with an exception (MemoryError, ValueError). */
	uint64_t (*add_event_hook)(const char *name, void (*hook)(const tack_event *event, void *user_data), void *user_data, unsigned domains, unsigned flags);
	/* Removes it: 0, or -1 when it is not there (any more); no exception. Hooks may be removed in any order. When it returns, the hook is not running on any thread and never will
	 * again, so its user data may go. It gives the GIL away to wait for that. Called by a hook it does not wait. */
	int (*remove_event_hook)(uint64_t hook);

	/* Delivers what waits, also to Python's hooks: 0. Does nothing in a hook. */
	int (*flush_events)(void);
	void (*get_event_counts)(tack_event_counts *counts); /* needs no GIL */

	/* For allocators of your own: tells the hooks of one event. kind, domain, device, old, new_, the sizes, stream, site and reason are yours to fill in, the rest is filled in here.
	 * Keep to the order that is promised above: NEW before you hand the memory out, FREE before its address can be used again. Needs no GIL. Nobody listens: two loads. */
	void (*tell_event)(const tack_event *event);

	/* "cuda:0"; NULL: there is no such device. It stays valid. */
	const char *(*device_name)(int device);
} tack_memory_api;

#define TACK_MEMORY_ABI 1

/* A hook from C can be given to Python's tack_memory.set_event_hook as a capsule of this name, with the function as its pointer and the user data as its context. The
 * capsule lives as long as the hook is set, or may be set again by somebody who has got it as the previous one; its destructor may free the user data. */
#define TACK_HOOK_CAPSULE "tack_memory.event_hook"
#define TACK_MEMORY_CAPSULE "tack_memory._C_API"

#ifdef Py_PYTHON_H
/* The table; NULL with an exception. */
static inline const tack_memory_api *tack_memory_import(void)
{
	const tack_memory_api *api = (const tack_memory_api *)PyCapsule_Import(TACK_MEMORY_CAPSULE, 0);
	if (api && (api->abi != TACK_MEMORY_ABI || api->size < sizeof(tack_memory_api))) {
		PyErr_Format(PyExc_ImportError, "this module was compiled for tack_memory's C API %d, %d bytes; what is installed has %d, %d bytes", TACK_MEMORY_ABI,
			(int)sizeof(tack_memory_api), (int)api->abi, (int)api->size);
		return NULL;
	}
	return api;
}
#endif

#ifdef __cplusplus
}
#endif
#endif
