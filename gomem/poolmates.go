package gomem

import (
	"errors"
	"slices"
	"sync/atomic"
)

// The devices of a process share one pool of host memory, and each has its own list of dropped buffers. A buffer that the program has let go of while it
// was spilled keeps its host copy until its device drains, a moment later. No other device must be refused host memory for that: so before a refusal counts,
// the others' lists are drained. Where nothing is refused, nobody looks at them.

// join adds a device to those whose copies are in the pool.
func (p *HostPool) join(d *Device) {
	p.changeDevices(func(all []*Device) []*Device { return append(all, d) })
}

// part takes a device out again.
func (p *HostPool) part(d *Device) {
	p.changeDevices(func(all []*Device) []*Device {
		return slices.DeleteFunc(all, func(other *Device) bool { return other == d })
	})
}

func (p *HostPool) changeDevices(change func([]*Device) []*Device) {
	p.lock()
	defer p.unlock()
	var all []*Device
	if before := p.devices.Load(); before != nil {
		all = slices.Clone(*before)
	}
	all = change(all)
	p.devices.Store(&all)
}

// drainPoolMates drains the other devices of the pool whose moving lock is free, and waits for drains that are under way: what lies on the list of a device
// that is moving memory goes when that lets go of its lock. False: there was nothing to drain.
//
// The caller has the moving lock of its own device, and two devices may do this to each other at one time. So nobody waits for another device's moving lock:
// Drain only tries. It runs on a goroutine of its own, with no lock of this call's: a panic in it breaks that other device and not this one. A drain that is
// under way may be waited for, since it waits for nobody but its driver.
func (d *Device) drainPoolMates() (drained bool) {
	for _, other := range *d.pool.devices.Load() {
		if other == d {
			continue
		}
		if atomic.LoadUint32(&other.books.Drops) != 0 {
			drained = true
			done := make(chan struct{})
			go func() {
				defer close(done)
				other.Drain()
			}()
			<-done
		}
		drained = other.awaitDrain() || drained
	}
	return drained
}

// awaitDrain waits until a drain that is under way on this device has ended. False: there was none.
func (d *Device) awaitDrain() bool {
	if d.draining.TryLock() {
		d.draining.Unlock()
		return false
	}
	d.lockDraining()
	d.unlockDraining()
	return true
}

func (d *Device) lockDraining() {
	d.draining.Lock()
	acquired(rankDraining)
}

func (d *Device) unlockDraining() {
	released(rankDraining)
	d.draining.Unlock()
}

// getHost gets host memory for a copy. Errors as for HostPool.Get.
func (d *Device) getHost(nbytes uint64) (HostBlock, error) {
	block, err := d.pool.Get(nbytes)
	if refused := (*HostMemoryError)(nil); errors.As(err, &refused) && d.drainPoolMates() {
		return d.pool.Get(nbytes)
	}
	return block, err
}

// hostRefusal is HostPool.refusal, with the other devices of the pool drained.
func (d *Device) hostRefusal(nbytes uint64) *HostMemoryError {
	refused := d.pool.refusal(nbytes)
	if refused != nil && d.drainPoolMates() {
		return d.pool.refusal(nbytes)
	}
	return refused
}
