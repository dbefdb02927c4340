/* The docstrings of the module's public functions and figures, in numpydoc's form. A signature and "--" come first: inspect.signature reads them. */
#ifndef TM_DOCS_CALLS_H
#define TM_DOCS_CALLS_H

/* What several of them say in the same words. */
#define TM_DOC_WHICH_DEVICE \
	"Parameters\n" \
	"----------\n" \
	"device : device, optional\n" \
	"    Which device; by default the current one.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"ValueError, TypeError\n" \
	"    There is no such device.\n"

#define TM_DOC_FORKED_NOTES \
	"ForkError\n" \
	"    In a forked child process, unless the device is the CPU.\n" \
	"\n" \
	"Notes\n" \
	"-----\n"

#define TM_DOC_ALLOCATE \
	"allocate(nbytes, device=None, *, zero=True, movable=True, reason=None, label=None)\n" \
	"--\n" \
	"\n" \
	"Allocate device memory that is counted, and that is spilled when memory runs short.\n" \
	"\n" \
	"Where the budget or the device has no room, the least recently used buffers are spilled for it.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"nbytes : int or str\n" \
	"    Bytes, \"24 MiB\", or a share of the device's total memory, \"10%\"; 0 is legal.\n" \
	"device : device, optional\n" \
	"    Which device; by default the current one.\n" \
	"zero : bool\n" \
	"    Clear the memory; otherwise its contents are undefined.\n" \
	"movable : bool\n" \
	"    False: the buffer stays on the device for as long as it lives.\n" \
	"reason : str, optional\n" \
	"    Why it cannot move, for reports and errors; only with movable=False.\n" \
	"label : str, optional\n" \
	"    What reports and errors call it; by default that of the surrounding `label` block.\n" \
	"\n" \
	"Returns\n" \
	"-------\n" \
	"Buffer\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"DeviceMemoryError\n" \
	"    It does not fit, also after all was spilled that can be. Nothing is lost, and the books are as before.\n" \
	"ValueError, TypeError\n" \
	"    No size, no such device, or a reason for a movable buffer.\n" \
	TM_DOC_FORKED_NOTES \
	"May be called from any thread. The GIL is released while memory moves; Ctrl-C ends the wait."

#define TM_DOC_RECEIVE \
	"receive(data, device=None, *, label=None)\n" \
	"--\n" \
	"\n" \
	"A buffer with these contents, which begins in host memory and comes to the device when the device first uses it.\n" \
	"\n" \
	"Nothing is copied: `data` is the buffer's host copy, and is kept until then. It must not change. What the host writes to the buffer\n" \
	"meanwhile goes into a copy of its own. Where device memory is host memory (the CPU), the contents are copied at once.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"data : bytes-like\n" \
	"    Contiguous. May be read-only.\n" \
	"device : device, optional\n" \
	"    Which device; by default the current one.\n" \
	"label : str, optional\n" \
	"    What reports and errors call it; by default that of the surrounding `label` block.\n" \
	"\n" \
	"Returns\n" \
	"-------\n" \
	"Buffer\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"DeviceMemoryError\n" \
	"    It is larger than the device.\n" \
	TM_DOC_FORKED_NOTES \
	"May be called from any thread."

#define TM_DOC_LAUNCH \
	"launch(*buffers, stream=None)\n" \
	"--\n" \
	"\n" \
	"Make buffers resident in one pass and hold them while a block runs: `with launch(a, b) as pointers: ...`\n" \
	"\n" \
	"`pointers` is a tuple of ints, in the order of the buffers, valid until the block ends. Work of the block belongs on\n" \
	"`stream(device)`, or on the stream that is given here.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"*buffers : Buffer or BufferView\n" \
	"    All on one device; one may be given more than once.\n" \
	"stream : int, optional\n" \
	"    Handle of the stream that the work is queued on: it begins after the restores, and a later spill is ordered after it.\n" \
	"    Where streams cannot be joined (Level Zero, or after a fault), entering and leaving wait for what is queued. Ctrl-C ends\n" \
	"    the wait; at the end of the block the buffers then stay held until the work is over. 2 is the per-thread default stream of\n" \
	"    CUDA and HIP, of the thread that enters: leave on the same one (else the whole context is waited for).\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"DeviceMemoryError\n" \
	"    On entry: they do not all fit at one time. Then none is held, and nothing is lost.\n" \
	"ValueError, TypeError\n" \
	"    Buffers of different devices, a freed buffer, or something that is no buffer.\n" \
	"RuntimeError\n" \
	"    On entering again before it was left, and on leaving without having entered.\n" \
	TM_DOC_FORKED_NOTES \
	"May be used from any thread. Where other launches hold what is needed, entering waits for them, unless the thread itself\n" \
	"holds something."

#define TM_DOC_RESERVE \
	"reserve(nbytes, device=None)\n" \
	"--\n" \
	"\n" \
	"Make room within the budget before a framework allocates by itself.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"nbytes : int or str\n" \
	"    What will be allocated, in bytes.\n" \
	"device : device, optional\n" \
	"    Which device; by default the current one.\n" \
	"\n" \
	"Returns\n" \
	"-------\n" \
	"Reservation\n" \
	"    Give it to `adopt`; when it is dropped or closed, the room is given back.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"DeviceMemoryError\n" \
	"    A strict budget has no room.\n" \
	"ValueError, TypeError\n" \
	"    No size, or no such device.\n" \
	"ForkError\n" \
	"    In a forked child process.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread; may spill others."

#define TM_DOC_RESERVATION \
	"Room within the budget, made by `reserve`: given to `adopt`, or dropped, which gives the room back.\n" \
	"\n" \
	"Attributes\n" \
	"----------\n" \
	"nbytes : int\n" \
	"    Bytes that were reserved.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be used from any thread, once."

#define TM_DOC_ADOPT \
	"adopt(ptr, nbytes, device=None, *, how, stream=None, reserved=None, movable=True, reason=None, label=None, into=None)\n" \
	"--\n" \
	"\n" \
	"Take over device memory that somebody else allocated: from now on it is counted, moved and freed here.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"ptr : int\n" \
	"    Address on the device, as the allocating call gave it: the beginning of a block.\n" \
	"nbytes : int\n" \
	"    Its size in bytes; not more than the block has.\n" \
	"device : device, optional\n" \
	"    Where it lies; by default the current one.\n" \
	"how : {\"cuMemAlloc\", \"cuMemAllocAsync\", \"hipMalloc\", \"hipMallocAsync\", \"zeMemAllocDevice\", \"host\"}\n" \
	"    The call that allocated it; it is freed by the one that matches. \"host\": whoever allocated it frees it, after this Buffer is gone, and it\n" \
	"    is only counted here; on devices that spill with movable=False alone.\n" \
	"stream : int, optional\n" \
	"    Handle of the stream that has work on it queued, its allocation for one: what is done here comes after that. By default the device's. It is\n" \
	"    not used any more after this call; later work on it is ordered by `launch`.\n" \
	"reserved : Reservation, optional\n" \
	"    Room that `reserve` made for it; used up, also at an error.\n" \
	"movable, reason, label\n" \
	"    As in `allocate`.\n" \
	"into : (dict, str), optional\n" \
	"    A dict and a key in it, for an object that keeps its pointer there: the Buffer takes the pointer's place, whatever comes after. Without it a signal\n" \
	"    handler that raises before the result is stored (Ctrl-C) loses the Buffer, and the memory is freed with it.\n" \
	"\n" \
	"Returns\n" \
	"-------\n" \
	"Buffer\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"DeviceMemoryError\n" \
	"    It would pass a strict budget.\n" \
	"ValueError, TypeError\n" \
	"    Memory that is ours already or overlaps ours; a call whose memory this device cannot free; what the driver says is no block of device memory,\n" \
	"    lies on another device, inside a block, or ends beyond it (with how=\"host\" nobody is asked); wrong arguments. Nothing changed, and the caller keeps the memory.\n" \
	"ForkError\n" \
	"    In a forked child process.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread. On any error the caller keeps the memory. May spill others."

#define TM_DOC_WRAP \
	"wrap(ptr, nbytes, device, owner)\n" \
	"--\n" \
	"\n" \
	"Give somebody else's device memory the methods of a Buffer; it is never counted and never moved.\n" \
	"\n" \
	"Inside memory of ours the result is a view of that buffer, which follows it when it moves.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"ptr, nbytes : int\n" \
	"    Address on the device, and size in bytes.\n" \
	"device : device\n" \
	"    Where it lies.\n" \
	"owner : object\n" \
	"    Kept alive as long as the result is.\n" \
	"\n" \
	"Returns\n" \
	"-------\n" \
	"BufferView\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"ValueError, TypeError\n" \
	"    Memory of which a part only is ours, that is ours on another device of the kind, or that of a buffer that another thread moves or frees just now: hold\n" \
	"    it. Wrong arguments.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread. That the memory is there for so long is the caller's word: it is not checked. Whether it is ours is\n" \
	"asked now: what is adopted later moves, and a view from before that does not follow it."

#define TM_DOC_MEMORY_INFO \
	"memory_info(device=None)\n" \
	"--\n" \
	"\n" \
	"Return how much memory a device holds for the program, and the most it held.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"device : device, optional\n" \
	"    Which device; by default the current one.\n" \
	"\n" \
	"Returns\n" \
	"-------\n" \
	"MemoryInfo\n" \
	"    One consistent moment; bytes, and None for what is unknown.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"ValueError, TypeError\n" \
	"    There is no such device.\n" \
	"DeviceLostError\n" \
	"    The driver cannot be asked any more.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread, also while others allocate. Creates no context on a device that was not used yet. In a\n" \
	"forked child process the counters can be read, and the driver's figures are None.\n" \
	"\n" \
	"The device \"numpy\" is the memory of NumPy's arrays, once `tack_memory.numpy` counts it. It has no driver, so those figures are\n" \
	"None; `reserved` is what lies around the arrays, headers and alignment."

#define TM_DOC_MEMORY_INFO_TYPE \
	"The memory of one device at one moment, in bytes; None is: unknown, or (for the budget) none.\n" \
	"\n" \
	"As a tuple it is (in_use, peak, cached, spilled, device_free, device_total); all else are attributes only.\n" \
	"\n" \
	"Attributes\n" \
	"----------\n" \
	"in_use : int\n" \
	"    Bytes of live buffers on the device.\n" \
	"peak : int\n" \
	"    The most `in_use` has been since the last `reset_peak_memory`.\n" \
	"cached : int or None\n" \
	"    Bytes that caches keep and `empty_cache` gives back.\n" \
	"spilled : int\n" \
	"    Bytes of buffers that lie in host memory instead.\n" \
	"device_free, device_total : int or None\n" \
	"    The driver's answer, as it is; None where it has none, or (free) the device was not used yet.\n" \
	"device : str\n" \
	"    \"cuda:0\".\n" \
	"budget : int or None\n" \
	"    The budget; None: there is none.\n" \
	"strict : bool\n" \
	"    Whether the budget is strict.\n" \
	"footprint : int\n" \
	"    in_use + spilled: what the program would need without a budget.\n" \
	"available : int or None\n" \
	"    device_free + cached.\n" \
	"reserved : int\n" \
	"    Bytes that are being built or moved, and room that hosts reserved.\n" \
	"pending_free : int\n" \
	"    Bytes that were dropped and are not back at the driver yet.\n" \
	"over_budget, over_budget_count : int\n" \
	"    Bytes above the budget now, and how many times `in_use` rose above it.\n" \
	"spill_count, restore_count, spilled_bytes, restored_bytes, received_bytes : int\n" \
	"    Totals of the process. Received: by unpickling buffers, which then begin in host memory.\n" \
	"host_bytes : int or None\n" \
	"    Host memory that spilled contents and their pool take, of all devices.\n" \
	"driver_allocated : int or None\n" \
	"    Metal's currentAllocatedSize."

#define TM_DOC_RESET_PEAK \
	"reset_peak_memory(device=None)\n" \
	"--\n" \
	"\n" \
	"Set the peak of a device to what is in use now. Open `memory_peak` scopes and other devices are not touched.\n" \
	"\n" \
	TM_DOC_WHICH_DEVICE \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread."

#define TM_DOC_STREAM \
	"stream(device=None)\n" \
	"--\n" \
	"\n" \
	"Return the handle of the stream on which a device's memory is moved and freed, as an int; 0 where there is none.\n" \
	"\n" \
	"Work on a buffer's memory belongs on it, or is ordered by `launch(..., stream=)`.\n" \
	"\n" \
	TM_DOC_WHICH_DEVICE \
	TM_DOC_FORKED_NOTES \
	"May be called from any thread. A stream is of a context, so on a device that was not used yet this makes one, as an allocation does; nothing else does."

#define TM_DOC_SYNCHRONIZE \
	"synchronize(device=None)\n" \
	"--\n" \
	"\n" \
	"Wait until a device has done all work queued on its stream, and what was dropped is back at the driver.\n" \
	"\n" \
	TM_DOC_WHICH_DEVICE \
	"DeviceLostError\n" \
	"    The device cannot be used any more.\n" \
	TM_DOC_FORKED_NOTES \
	"May be called from any thread; the GIL is released while it waits."

#define TM_DOC_EMPTY_CACHE \
	"empty_cache(device=None)\n" \
	"--\n" \
	"\n" \
	"Give the memory that a device's caches keep back to the driver, and return the bytes released.\n" \
	"\n" \
	TM_DOC_WHICH_DEVICE \
	TM_DOC_FORKED_NOTES \
	"May be called from any thread. Waits for the device. It is done by itself before anything is spilled because an allocation failed."

#define TM_DOC_EMPTY_HOST_POOL \
	"empty_host_pool()\n" \
	"--\n" \
	"\n" \
	"Give host memory back that is kept ready for spilled contents, and return the bytes released.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"ForkError\n" \
	"    In a forked child process.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread. The contents of spilled buffers stay."

#define TM_DOC_SET_ORIGINS \
	"set_origins(mode, /)\n" \
	"--\n" \
	"\n" \
	"Record where buffers are allocated, or stop it, and return the mode before.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"mode : {\"off\", \"line\", \"stack\"}\n" \
	"    \"line\": file and line of each allocation from now on, for reports, errors, `Buffer.origin`, and `MemoryPeak.at_peak` of scopes\n" \
	"    that are entered from now on. \"stack\": the frames that called it, too, 32 at most, for reports and `Buffer.origin_stack`; whatever\n" \
	"    shows one line shows the innermost. Frames of this package and of a host framework's machinery are passed over in both.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"ValueError, TypeError\n" \
	"    Another mode.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread, and holds for all of them. \"off\" is the default, and costs nothing; \"line\" some tenths of a microsecond an allocation,\n" \
	"\"stack\" some tenths more for every ten frames. Different texts are kept as long as the process lives; after 2**20 of them, or 64 MiB of text, those of new\n" \
	"lines are \"(other)\" in reports and errors. Stacks take half of that at most; after it, new ones are told as their lines."

#endif
