package gomem

import (
	"errors"
	"fmt"
	"unsafe"
)

// Device memory and streams that are somebody else's: nothing here is counted, moved or held. The callers vouch for the addresses.

// StreamError says that a stream that the caller named is none of this device's.
type StreamError struct {
	Device string
	Stream uint64
	Cause  error // the driver's
}

func (e *StreamError) Error() string {
	return fmt.Sprintf("stream %#x is not a stream of %s that work can be ordered with: %v", e.Stream, e.Device, e.Cause)
}

// Unwrap returns the driver's error.
func (e *StreamError) Unwrap() error { return e.Cause }

// Join makes stream `to` wait for what is queued on stream `from` now; 0 is the device's own stream. Errors: *StreamError where the driver does not know
// the other stream, *LostError, and the driver's.
func (d *Device) Join(from, to uint64) (err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return err
	}
	return d.joinFault(d.driver.Join(from, to), max(from, to))
}

// joinFault makes the error of the driver's Join ours; stream is the one that is not the device's own.
func (d *Device) joinFault(err error, stream uint64) error {
	if errors.Is(err, ErrInvalidHandle) {
		return &StreamError{Device: d.name, Stream: stream, Cause: err}
	}
	return d.driverFault(err)
}

// Stream is the handle of the stream on which the device's memory is moved and freed; 0 where there is none.
func (d *Device) Stream() (stream uint64, err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return 0, err
	}
	return d.driver.Stream(), nil
}

// SetStream makes a host framework's context and stream the device's own.
func (d *Device) SetStream(context, stream uint64) (err error) {
	defer d.guard(&err)
	return d.whileNothingMoves(func() error { return d.driverFault(d.driver.SetStream(context, stream)) })
}

// ForeignToHost copies device memory that is not ours to the host; at return it is there.
func (d *Device) ForeignToHost(host unsafe.Pointer, address, nbytes uint64, w Wait) (err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return err
	}
	return d.copyOut(host, address, nbytes, w.Cancel)
}

// ForeignFromHost copies host memory to device memory that is not ours. A cancelled copy has written a part.
func (d *Device) ForeignFromHost(address uint64, host unsafe.Pointer, nbytes uint64, w Wait) (err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return err
	}
	return d.copyIn(address, host, nbytes, w.Cancel)
}

// ForeignFill repeats pattern (1 to 16 bytes) over device memory that is not ours.
func (d *Device) ForeignFill(address uint64, pattern []byte, nbytes uint64) (err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return err
	}
	return d.driverFault(d.driver.Fill(address, pattern, nbytes))
}

// ForeignCopy copies on the device where one side or both are not ours.
func (d *Device) ForeignCopy(destination, source, nbytes uint64) (err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return err
	}
	return d.driverFault(d.driver.CopyWithin(destination, source, nbytes))
}
