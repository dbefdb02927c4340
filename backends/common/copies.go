//go:build cgo

package common

import "unsafe"

// Transfers are the calls of a driver's library that Copies is made of. The device is in use while they run.
type Transfers interface {
	CopyOut(host unsafe.Pointer, address, nbytes uint64) error
	CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error
	CopyApart(destination, source, nbytes uint64) error
	CopyInSteps(destination, source, nbytes uint64) error
	Fill(address uint64, p Pattern, nbytes uint64) error
}

// Copies are the copies and fills of a driver whose device starts at its first use and may be closed at any time (Life). A driver embeds them.
type Copies struct {
	name      string
	life      *Life
	transfers Transfers
	mover     Mover
}

// NewCopies are the copies of a device by a library's calls. mover is the driver that they are embedded in.
func NewCopies(name string, life *Life, transfers Transfers, mover Mover) Copies {
	return Copies{name: name, life: life, transfers: transfers, mover: mover}
}

// CopyOut copies to host memory, which is complete at return.
func (c *Copies) CopyOut(host unsafe.Pointer, address, nbytes uint64) error {
	if err := c.life.Use(); err != nil {
		return err
	}
	defer c.life.Done()
	return c.transfers.CopyOut(host, address, nbytes)
}

// CopyIn copies from host memory, which is no longer needed at return.
func (c *Copies) CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error {
	if err := c.life.Use(); err != nil {
		return err
	}
	defer c.life.Done()
	return c.transfers.CopyIn(address, host, nbytes)
}

// CopyWithin copies on the device as memmove does. It does not wait, unless the library's copies do, or overlapping ranges meet a device without any
// memory to spare. After an error in an overlapping copy the destination may be written in part.
func (c *Copies) CopyWithin(destination, source, nbytes uint64) error {
	return Move(c.mover, destination, source, nbytes)
}

// CopyApart copies between ranges that do not overlap.
func (c *Copies) CopyApart(destination, source, nbytes uint64) error {
	if err := c.life.Use(); err != nil {
		return err
	}
	defer c.life.Done()
	return c.transfers.CopyApart(destination, source, nbytes)
}

// CopyInSteps copies between overlapping ranges, in steps of their distance.
func (c *Copies) CopyInSteps(destination, source, nbytes uint64) error {
	if err := c.life.Use(); err != nil {
		return err
	}
	defer c.life.Done()
	return c.transfers.CopyInSteps(destination, source, nbytes)
}

// Fill repeats a pattern of 1 to 16 bytes.
func (c *Copies) Fill(address uint64, pattern []byte, nbytes uint64) error {
	p, err := NewPattern(c.name, pattern)
	if err != nil {
		return err
	}
	if err := c.life.Use(); err != nil {
		return err
	}
	defer c.life.Done()
	return c.transfers.Fill(address, p, nbytes)
}
