package metal

import (
	"fmt"

	"github.com/tack-memory/tack-memory/gomem"
)

// commandBufferFailed is MTLCommandBufferStatusError.
const commandBufferFailed = 5

// Command buffers of one queue run in the order in which they were committed. So an empty one that has completed tells that all before it have.
// What the host framework has encoded and not committed yet is unknown to Metal, and to us: committing it before is the framework's part.

// settle waits for what is committed to a queue; nil has nothing. Call it inside a pool.
func (d *Driver) settle(queue Object) error {
	if queue == 0 {
		return nil
	}
	o := d.objects
	empty := o.sendObject(queue, methodCommandBuffer)
	if empty == 0 {
		return d.nothing(methodCommandBuffer, nil)
	}
	o.send(empty, methodCommit)
	o.send(empty, methodWaitUntilCompleted)
	if o.send(empty, methodStatus) != commandBufferFailed {
		return nil
	}
	return d.commandFailure(int(o.send(o.sendObject(empty, methodError), methodCode)))
}

// Stream is the host framework's command queue; 0: none was given.
func (d *Driver) Stream() uint64 {
	d.bound.RLock()
	defer d.bound.RUnlock()
	return uint64(d.queue)
}

// SetStream takes the host framework's MTLCommandQueue: copies and fills wait from now on for what was committed to it. 0 gives it back. Metal
// has no contexts: context must be 0, or the MTLDevice itself. The Driver keeps a reference of its own. After an error nothing changed.
func (d *Driver) SetStream(context, stream uint64) error {
	d.bound.Lock()
	defer d.bound.Unlock()
	if d.closed {
		return d.closedError()
	}
	queue := Object(stream)
	var err error
	d.objects.pooled(func() {
		if err = d.checkQueue(Object(context), queue); err != nil {
			return
		}
		if err = d.settle(d.queue); err != nil {
			return
		}
		d.objects.retain(queue)
		d.objects.release(d.queue)
		d.queue = queue
	})
	return err
}

// checkQueue refuses what would crash, or be ignored, later.
func (d *Driver) checkQueue(context, queue Object) error {
	o := d.objects
	if context != 0 && context != d.device {
		return fmt.Errorf("%s: Metal has no contexts, give 0 or the device's own MTLDevice: %w", d.name, gomem.ErrInvalidHandle)
	}
	if queue == 0 || queue == d.queue {
		return nil
	}
	if !o.has(queue, methodCommandBuffer) || !o.has(queue, methodDevice) {
		return fmt.Errorf("%s: %#x is no MTLCommandQueue: %w", d.name, uintptr(queue), gomem.ErrInvalidHandle)
	}
	if !o.sameDevice(o.sendObject(queue, methodDevice), d.device) {
		return fmt.Errorf("%s: the command queue %#x belongs to another device: %w", d.name, uintptr(queue), gomem.ErrInvalidHandle)
	}
	return nil
}

// Join makes work on one queue come after what is committed to another now; 0 is the queue of SetStream. It waits for the first: Metal could
// order them on the device only from inside the second's own command buffers.
func (d *Driver) Join(from, to uint64) error {
	return d.use(func() error {
		first, then := Object(from), Object(to)
		if first == 0 {
			first = d.queue
		}
		if then == 0 {
			then = d.queue
		}
		if first == then {
			return nil
		}
		if err := d.checkQueue(0, first); err != nil {
			return err
		}
		return d.settle(first)
	})
}
