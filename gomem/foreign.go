package gomem

import "unsafe"

// Device memory that is somebody else's: nothing here is counted, moved or held. The callers vouch for the addresses.

// ForeignToHost copies device memory that is not ours to the host; at return it is there.
func (d *Device) ForeignToHost(host unsafe.Pointer, address, nbytes uint64, w Wait) (err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return err
	}
	return d.copyOut(host, address, nbytes, w)
}

// ForeignFromHost copies host memory to device memory that is not ours. A cancelled copy has written a part.
func (d *Device) ForeignFromHost(address uint64, host unsafe.Pointer, nbytes uint64, w Wait) (err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return err
	}
	return d.copyIn(address, host, nbytes, w)
}

// ForeignFill repeats pattern (1 to 16 bytes) over device memory that is not ours. A cancelled fill has written a part.
func (d *Device) ForeignFill(address uint64, pattern []byte, nbytes uint64, w Wait) (err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return err
	}
	return d.fillDevice(address, pattern, nbytes, w)
}

// ForeignCopy copies on the device where one side or both are not ours.
func (d *Device) ForeignCopy(destination, source, nbytes uint64) (err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return err
	}
	return d.driverFault(d.driver.CopyWithin(destination, source, nbytes))
}
