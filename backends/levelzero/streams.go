package levelzero

/*
#include "device.h"

static inline tml_status tml_wait_for_list(tml_device *d, uint64_t list, uint64_t nanoseconds) {
	return tml_wait_until(d, (ze_command_list_handle_t)(uintptr_t)list, nanoseconds);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"time"
)

// JoinWaits is true: no event of ours can be appended to a list that is somebody else's, so the host waits for it.
func (d *Driver) JoinWaits() bool { return true }

// Passed waits until the device is done with what was appended to a command list (0: the device's own), for `patience` at most.
func (d *Driver) Passed(list uint64, patience time.Duration) (bool, error) {
	if err := d.life.Use(); err != nil {
		return false, err
	}
	defer d.life.Done()
	status := C.tml_wait_for_list(d.device, C.uint64_t(list), C.uint64_t(patience.Nanoseconds()))
	switch status.code {
	case 0:
		return true, nil
	case C.TML_NOT_READY:
		return false, nil
	}
	return false, listFailure(d.name, status)
}

// Finish fails: the library has no call that waits for a whole context.
func (d *Driver) Finish() error {
	return fmt.Errorf("%s: Level Zero cannot wait for all work of a context: %w", d.name, errors.ErrUnsupported)
}
