package gomem_test

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

const mib = 1 << 20

// bench is a device over a fake driver, for one test.
type bench struct {
	*gomem.Device
	t      *testing.T
	driver *fakedriver.Device
	pool   *gomem.HostPool
	lane   *lane
	broken bool // the test breaks it
}

// open makes a device; the test's end checks its books, drops nothing, and closes it where the test left no buffers.
func open(t *testing.T, options fakedriver.Options, change ...func(*gomem.Options)) *bench {
	t.Helper()
	b := &bench{t: t, driver: fakedriver.New(options), pool: gomem.NewHostPool()}
	o := gomem.Options{Movable: true, Pool: b.pool, MaxWait: 30 * time.Second}
	for _, f := range change {
		f(&o)
	}
	var err error
	b.Device, err = gomem.NewDevice(b.driver, o)
	require.NoError(t, err)
	b.lane = &lane{device: b.Device}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := b.Check(); b.broken {
			var broken *gomem.BrokenError
			require.ErrorAs(t, err, &broken)
			return
		} else {
			require.NoError(t, err)
		}
		if b.info().Live == 0 {
			require.NoError(t, b.Close())
		}
	})
	return b
}

func (b *bench) info() gomem.Info {
	info, err := b.Info(false)
	require.NoError(b.t, err)
	return info
}

func (b *bench) holders(limit int) []gomem.Holder {
	b.t.Helper()
	holders, err := b.Holders(limit)
	require.NoError(b.t, err)
	return holders
}

func (b *bench) unspillable() map[string]int64 {
	b.t.Helper()
	bytes, err := b.Unspillable()
	require.NoError(b.t, err)
	return bytes
}

func (b *bench) budget(nbytes int64, strict bool) {
	b.t.Helper()
	_, _, err := b.SetBudget(nbytes, strict, gomem.Wait{})
	require.NoError(b.t, err)
}

// allocate makes a buffer with contents that fill(seed) repeats.
func (b *bench) allocate(nbytes uint64) uint32 {
	b.t.Helper()
	index, err := b.Allocate(nbytes, gomem.AllocateOptions{})
	require.NoError(b.t, err)
	b.write(index, uint64(index))
	return index
}

func contents(nbytes, seed uint64) []byte {
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), 99})
	data := make([]byte, nbytes)
	if _, err := source.Read(data); err != nil {
		panic(err) // never
	}
	return data
}

func (b *bench) write(index uint32, seed uint64) {
	b.t.Helper()
	if data := contents(b.Record(index).Size, seed); len(data) > 0 {
		require.NoError(b.t, b.CopyFromHost(index, 0, unsafe.Pointer(&data[0]), uint64(len(data)), gomem.Wait{}))
	}
}

func (b *bench) read(index uint32) []byte {
	b.t.Helper()
	data := make([]byte, b.Record(index).Size)
	if len(data) > 0 {
		require.NoError(b.t, b.CopyToHost(index, 0, unsafe.Pointer(&data[0]), uint64(len(data)), gomem.Wait{}))
	}
	return data
}

// has checks that a buffer has the contents written with this seed.
func (b *bench) has(index uint32, seed uint64) {
	b.t.Helper()
	require.True(b.t, bytes.Equal(contents(b.Record(index).Size, seed), b.read(index)), "buffer %d has other contents", index)
}

func (b *bench) state(index uint32) gomem.State {
	state, _ := gomem.StateOf(atomic.LoadUint32(&b.Record(index).Word))
	return state
}

func (b *bench) use(index uint32) {
	b.t.Helper()
	require.NoError(b.t, b.MakeResident(index, gomem.Wait{}))
}

func (b *bench) drop(indexes ...uint32) {
	for _, index := range indexes {
		b.Drop(index)
	}
}

// export holds a buffer as long as the test likes.
func (b *bench) export(index uint32) (release func()) {
	b.t.Helper()
	id, err := b.Hold(index, gomem.HoldExport, gomem.Intern("dlpack"), gomem.Wait{})
	require.NoError(b.t, err)
	return func() { b.Release(index, id) }
}

// soon fails the test when f does not return within a time that only a deadlock takes.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s does not end", what)
	}
}
