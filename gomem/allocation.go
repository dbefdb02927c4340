package gomem

import "fmt"

// Allocation is what a driver says that it has allocated at an address: nothing where Bytes is 0.
type Allocation struct {
	Base, Bytes uint64
	Host        bool   // host memory that the device can reach
	Freed       bool   // it was given to Free, and the driver keeps it: until the device is done with it, or for another allocation
	Elsewhere   string // the device on which it lies, where that is another one; "": this one, or the driver does not tell
}

// Refuse is a *BlockError where the block is not this allocation, or longer, or lies on another device; nil where it can be freed.
func (a Allocation) Refuse(device string, block Block) error {
	if a.Bytes != 0 && !a.Host && !a.Freed && a.Elsewhere == "" && a.Base == block.Address && block.Bytes <= a.Bytes {
		return nil
	}
	return &BlockError{Device: device, Block: block, Found: a}
}

// BlockError says that memory given to Adopt is no block of the driver's, which could be moved and freed as it was told; nothing changed.
type BlockError struct {
	Device string
	Block  Block
	Found  Allocation // what the driver says lies there
}

func (e *BlockError) Error() string {
	b, at := e.Block, e.Found
	var why string
	switch {
	case at.Freed:
		why = "a buffer had it, which was freed or has moved; its memory is on its way back to the driver"
	case at.Bytes == 0:
		why = "the driver knows no memory of its own there; give the address that the allocating call returned, for the device that it was called on"
	case at.Host:
		why = fmt.Sprintf("for the driver [%#x, %#x) is host memory; only device memory can be adopted", at.Base, at.Base+at.Bytes)
	case at.Elsewhere != "":
		why = fmt.Sprintf("it lies on %s; adopt it there", at.Elsewhere)
	case at.Base != b.Address:
		why = fmt.Sprintf("it lies inside the block [%#x, %#x), which can only be freed as a whole; adopt the block, and use a view of it", at.Base, at.Base+at.Bytes)
	default:
		why = fmt.Sprintf("the block there ends at %#x; adopt its %d bytes, or less", at.Base+at.Bytes, at.Bytes)
	}
	return fmt.Sprintf("%s cannot adopt [%#x, %#x), %d bytes of %v: %s", e.Device, b.Address, b.Address+b.Bytes, b.Bytes, b.How, why)
}
