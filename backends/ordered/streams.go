package ordered

// #include "device.h"
import "C"

import "time"

// JoinWaits is false: streams are joined by an event, on the device.
func (d *Driver) JoinWaits() bool { return false }

// Passed asks whether the device is done with what was queued on a stream; 0 is the device's own. The library cannot wait for a limited time, so it does not
// wait.
func (d *Driver) Passed(stream uint64, _ time.Duration) (bool, error) {
	if err := d.life.Use(); err != nil {
		return false, err
	}
	defer d.life.Done()
	status := C.tmo_passed(d.device, C.uint64_t(stream))
	if status.code != 0 && d.library.meaning(status) == C.TMO_NOT_READY {
		return false, nil
	}
	err := d.check(status)
	return err == nil, err
}

// Finish waits for all work of the device's context, on whatever stream.
func (d *Driver) Finish() error {
	if err := d.life.Use(); err != nil {
		return err
	}
	defer d.life.Done()
	return d.check(C.tmo_finish(d.device))
}
