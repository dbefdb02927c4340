package gomem_test

import (
	"sync"
	"sync/atomic"

	"github.com/tack-memory/tack-memory/gomem"
)

// lane is the launch pass of the C fast lane (bindings/fast), line by line, in Go: counts go up under the GIL before the states are read, and
// nothing but a state orders it against the spiller.
type lane struct {
	gil    sync.Mutex
	device *gomem.Device
}

// enter makes the buffers resident, holds them, and returns their addresses (model: launch.enter, launch.check, launch.admit).
func (l *lane) enter(indexes []uint32, w gomem.Wait) (addresses []uint64, err error) {
	records := make([]*gomem.Record, len(indexes))
	for i, index := range indexes {
		records[i] = l.device.Record(index)
	}
	addresses = make([]uint64, len(indexes))
	l.gil.Lock()
	for _, r := range records {
		addLaunches(r, 1)
	}
	resident := true
	for i, r := range records {
		resident = resident && atomic.LoadUint32(&r.Word) == uint32(gomem.Resident)
		if !resident {
			break
		}
		addresses[i] = r.Address
		l.use(r)
	}
	if resident {
		l.gil.Unlock()
		return addresses, nil
	}
	for _, r := range records {
		addLaunches(r, -1)
	}
	l.gil.Unlock()
	l.ended()

	if err := l.device.Admit(indexes, w); err != nil {
		return nil, err
	}
	l.gil.Lock()
	for i, r := range records {
		addLaunches(r, 1)
		addresses[i] = r.Address
	}
	l.gil.Unlock()
	l.device.Discharge(indexes)
	return addresses, nil
}

// leave ends the launch.
func (l *lane) leave(indexes []uint32) {
	l.gil.Lock()
	for _, index := range indexes {
		addLaunches(l.device.Record(index), -1)
	}
	l.gil.Unlock()
	l.ended()
}

func (l *lane) ended() {
	if l.device.Waiting() {
		l.device.Ended()
	}
}

func (l *lane) use(r *gomem.Record) {
	books := l.device.Books()
	clock := atomic.LoadUint64(&books.Clock) + 1
	atomic.StoreUint64(&books.Clock, clock)
	atomic.StoreUint64(&r.LastUse, clock)
}
