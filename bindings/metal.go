package bindings

import (
	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/bindings/internal/wire"
)

// What an adapter of a host framework on Metal needs. Metal has no pool of its own to ask, and its kernels take objects and not addresses.

// SetHostCache tells how many bytes the host framework's own pool or cache keeps on a device (CUDA, HIP, Metal) for later use; memory_info shows
// them as cached. -1 (Metal): it cannot tell. An adapter calls it whenever its host's pool changes, and with 0 when it is unplugged.
func SetHostCache(index int64, nbytes int64) (err error) {
	defer rescue(&err)
	if _, err := deviceAt(index); err != nil {
		return failure(err)
	}
	if err := engine.SetHostCache(uint32(index), nbytes); err != nil {
		return failure(wire.ValueError{Text: err.Error()})
	}
	return nil
}

// MetalBuffer returns the address of the MTLBuffer object behind a buffer that was allocated on a Metal device; address is the buffer's device_ptr.
// The object is the buffer's: retain it to keep it longer.
func MetalBuffer(index int64, address int64) (object int64, err error) {
	defer rescue(&err)
	if _, err := deviceAt(index); err != nil {
		return 0, failure(err)
	}
	found, err := engine.MetalBuffer(uint32(index), uint64(address))
	if err != nil {
		return 0, failure(wire.ValueError{Text: err.Error()})
	}
	return int64(found), nil
}
