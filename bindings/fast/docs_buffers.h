/* The docstrings of buffers, their views and exports, in numpydoc's form. A signature and "--" come first: inspect.signature reads them. */
#ifndef TM_DOCS_BUFFERS_H
#define TM_DOCS_BUFFERS_H

#define TM_DOC_BUFFER \
	"One block of device memory that tack_memory owns and counts; made by `allocate` and `adopt`.\n" \
	"\n" \
	"It lies on the device or, spilled, in host memory. The host reads and writes whichever copy there is; only use on the\n" \
	"device brings it back: `device_ptr`, `hold`, `launch`, `export`, `restore`, a copy on the device. Dropping the last reference\n" \
	"frees it. `nbytes, device, is_spilled, state, label, origin, origin_stack, holds` can be read after `free`, too; all else raises\n" \
	"ValueError.\n" \
	"\n" \
	"Attributes\n" \
	"----------\n" \
	"device_ptr : int\n" \
	"    Address on the device; makes it resident and counts a use. Valid until the next allocation, restore or spill by any\n" \
	"    thread, unless held.\n" \
	"nbytes : int\n" \
	"    Size in bytes.\n" \
	"device : str\n" \
	"    \"cuda:0\".\n" \
	"state : {\"building\", \"resident\", \"spilling\", \"spilled\", \"restoring\", \"freed\"}\n" \
	"is_spilled : bool\n" \
	"    Whether the contents are in host memory now.\n" \
	"label : str or None\n" \
	"    What reports and errors call it; can be set.\n" \
	"origin : str or None\n" \
	"    Where it was allocated, \"file.py:12\"; None unless `set_origins` has them recorded.\n" \
	"origin_stack : tuple of str or None\n" \
	"    The frames that allocated it, \"file.py:12 function\", the innermost first; None unless `set_origins` has stacks recorded.\n" \
	"holds : dict of str to int\n" \
	"    Why it cannot be moved now: reason -> count.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"DeviceMemoryError\n" \
	"    `device_ptr`: it does not fit on the device; it stays in host memory, and nothing is lost.\n" \
	"ValueError\n" \
	"    It was freed.\n" \
	"ForkError\n" \
	"    In a forked child process, unless the device is the CPU.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be used from any thread."

#define TM_DOC_BUFFER_VIEW \
	"A part of a Buffer, or memory that somebody else owns (`wrap`); made by `Buffer.view` and `wrap`.\n" \
	"\n" \
	"It has the methods of a Buffer but `free`: it owns nothing, is not counted, and keeps its base alive. What moves or is held is the\n" \
	"whole base, and the pointer comes from it.\n" \
	"\n" \
	"Attributes\n" \
	"----------\n" \
	"base : Buffer or None\n" \
	"    None: the memory is not ours.\n" \
	"offset : int\n" \
	"    Where it begins in its base, in bytes.\n" \
	"owner : object\n" \
	"    What keeps the memory alive: the base, or what was given to `wrap`.\n" \
	"device_ptr, nbytes, device, state, is_spilled, label, origin, origin_stack, holds\n" \
	"    As those of a Buffer; all but the first two are its base's.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be used from any thread."

#define TM_DOC_EXPORTED \
	"Keeps a buffer on the device while it, or what it was given to, lives; made by `Buffer.export`.\n" \
	"\n" \
	"It offers DLPack (`from_dlpack` of NumPy, CuPy, PyTorch and others) as uint8 in one dimension.\n" \
	"\n" \
	"Attributes\n" \
	"----------\n" \
	"device_ptr : int\n" \
	"    Address on the device; valid until `close`.\n" \
	"nbytes : int\n" \
	"    Size in bytes.\n" \
	"buffer : Buffer or BufferView\n" \
	"    What was exported.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be used from any thread."

#define TM_DOC_COPY_FROM_HOST \
	"copy_from_host($self, /, obj, offset=0)\n" \
	"--\n" \
	"\n" \
	"Write host memory into the buffer. A spilled buffer stays spilled: its host copy is written.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"obj : buffer-protocol object\n" \
	"    Contiguous; all of its bytes are written.\n" \
	"offset : int\n" \
	"    Where to begin, in bytes.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"ValueError, TypeError\n" \
	"    It does not fit, is not contiguous, or is no such object; the buffer was freed.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread. Counts a use. Complete on return. Ctrl-C ends a long copy: a part is written then."

#define TM_DOC_COPY_TO_HOST \
	"copy_to_host($self, /, out=None, offset=0, nbytes=None)\n" \
	"--\n" \
	"\n" \
	"Read the buffer into host memory. A spilled buffer stays spilled: its host copy is read.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"out : buffer-protocol object, optional\n" \
	"    Contiguous and writable; by default a new bytearray.\n" \
	"offset : int\n" \
	"    Where to begin, in bytes.\n" \
	"nbytes : int, optional\n" \
	"    How much; by default all of `out`, or all from `offset` on.\n" \
	"\n" \
	"Returns\n" \
	"-------\n" \
	"`out`, or the bytearray.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"ValueError, TypeError\n" \
	"    The range is not in the buffer or not in `out`; `out` is no such object; the buffer was freed.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread. Waits for work queued before, and counts a use."

#define TM_DOC_FILL \
	"fill($self, /, value, offset=0, nbytes=None)\n" \
	"--\n" \
	"\n" \
	"Repeat a value over the buffer. A spilled buffer stays spilled: its host copy is written.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"value : int or bytes\n" \
	"    A byte from 0 to 255, or a pattern of 1 to 16 bytes.\n" \
	"offset, nbytes : int\n" \
	"    The range, in bytes; by default the whole buffer, or what follows `offset`.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"ValueError, TypeError\n" \
	"    The range is not in the buffer; no such value; the buffer was freed.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread. Counts a use. Ctrl-C ends a long fill: a part is written then."

#define TM_DOC_COPY_FROM \
	"copy_from($self, /, other, offset=0, source_offset=0, nbytes=None)\n" \
	"--\n" \
	"\n" \
	"Copy from a buffer of the same device; ranges may overlap. Both become resident; where both are spilled, the copy is made in\n" \
	"host memory.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"other : Buffer or BufferView\n" \
	"    The source.\n" \
	"offset, source_offset : int\n" \
	"    Where to begin here and in the source, in bytes.\n" \
	"nbytes : int, optional\n" \
	"    How much; by default all of the source from `source_offset` on.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"DeviceMemoryError\n" \
	"    They do not fit on the device together.\n" \
	"ValueError, TypeError\n" \
	"    Another device; a range that is not in its buffer; no buffer; one that was freed.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread. Counts a use of both."

#define TM_DOC_SPILL \
	"spill($self, /)\n" \
	"--\n" \
	"\n" \
	"Move the contents to host memory, and return the bytes freed: 0 where it is held, cannot move, or is spilled already.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"DeviceMemoryError\n" \
	"    Host memory ran out (reason \"host\"); the buffer stays on the device.\n" \
	"ValueError\n" \
	"    The buffer was freed.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread. Work that was queued before and uses it is waited for."

#define TM_DOC_RESTORE \
	"restore($self, /)\n" \
	"--\n" \
	"\n" \
	"Move the contents back to the device ahead of use; this may spill others.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"DeviceMemoryError\n" \
	"    It does not fit; it stays in host memory, and nothing is lost.\n" \
	"ValueError\n" \
	"    The buffer was freed.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread. Counts a use. It is not held: use `hold` for that."

#define TM_DOC_VIEW \
	"view($self, /, offset, nbytes)\n" \
	"--\n" \
	"\n" \
	"Return a BufferView of a part, which keeps its base alive and follows it when it moves.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"offset, nbytes : int\n" \
	"    The part, in bytes.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"ValueError, TypeError\n" \
	"    The part is not in the buffer; the buffer was freed.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread."

#define TM_DOC_HOLD \
	"hold($self, /, reason='hold')\n" \
	"--\n" \
	"\n" \
	"Keep it on the device while a block runs: `with buffer.hold(\"texture\") as pointer: ...`\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"reason : str\n" \
	"    Why, for reports and errors.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"DeviceMemoryError\n" \
	"    On entry: it does not fit.\n" \
	"ValueError, TypeError\n" \
	"    The buffer was freed; the reason is no string.\n" \
	"RuntimeError\n" \
	"    On entering again before it was left, and on leaving without having entered.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be used from any thread; may end in another one. Holds are counted."

#define TM_DOC_EXPORT \
	"export($self, /, reason='export')\n" \
	"--\n" \
	"\n" \
	"Make it resident, and keep it so while the result, or what that was given to, lives.\n" \
	"\n" \
	"Parameters\n" \
	"----------\n" \
	"reason : str\n" \
	"    To what, for reports and errors: \"dlpack\".\n" \
	"\n" \
	"Returns\n" \
	"-------\n" \
	"Exported\n" \
	"    Offers DLPack, as uint8 in one dimension.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"DeviceMemoryError\n" \
	"    It does not fit on the device.\n" \
	"ValueError, TypeError\n" \
	"    The buffer was freed; the reason is no string.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread."

#define TM_DOC_FREE \
	"free($self, /)\n" \
	"--\n" \
	"\n" \
	"Give the memory back now, instead of when the last reference goes. A second time does nothing.\n" \
	"\n" \
	"Raises\n" \
	"------\n" \
	"BufferError\n" \
	"    There is a hold, an export or a launch; nothing has changed.\n" \
	"\n" \
	"Notes\n" \
	"-----\n" \
	"May be called from any thread. Views of it die: every later use of them or of the buffer is a ValueError."

#endif
