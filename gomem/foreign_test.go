package gomem_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// What is done to foreign memory works, and changes no books.
func TestForeignMemoryIsReadAndWrittenAndNotCounted(t *testing.T) {
	b := open(t, fakedriver.Options{})
	address, err := b.driver.Allocate(8)
	require.NoError(t, err)
	given, got := [4]byte{1, 2, 3, 4}, [8]byte{}
	require.NoError(t, b.ForeignFill(address, []byte{9}, 8, gomem.Wait{}))
	require.NoError(t, b.ForeignFromHost(address, unsafe.Pointer(&given), 4, gomem.Wait{}))
	require.NoError(t, b.ForeignCopy(address+3, address, 4))
	require.NoError(t, b.ForeignToHost(unsafe.Pointer(&got), address, 8, gomem.Wait{}))
	require.Equal(t, [8]byte{1, 2, 3, 1, 2, 3, 4, 9}, got)
	require.Zero(t, b.info().InUse)
	stopped := gomem.Wait{Cancel: new(gomem.Cancel)}
	stopped.Cancel.Cancel()
	require.ErrorIs(t, b.ForeignToHost(unsafe.Pointer(&got), address, 8, stopped), gomem.ErrCancelled)
	require.ErrorIs(t, b.ForeignFromHost(address, unsafe.Pointer(&given), 4, stopped), gomem.ErrCancelled)
	require.NoError(t, b.driver.Free(gomem.Block{Address: address, Bytes: 8}))
}

// A device that is found lost by an access to foreign memory, or by a stream, is lost for everything else, without another call into the driver.
func TestLostDeviceIsFoundByForeignAccessToo(t *testing.T) {
	var memory [1]byte
	for name, access := range map[string]func(b *bench) error{
		"read":  func(b *bench) error { return b.ForeignToHost(unsafe.Pointer(&memory), 1<<40, 1, gomem.Wait{}) },
		"write": func(b *bench) error { return b.ForeignFromHost(1<<40, unsafe.Pointer(&memory), 1, gomem.Wait{}) },
		"fill":  func(b *bench) error { return b.ForeignFill(1<<40, []byte{1}, 1, gomem.Wait{}) },
		"copy":  func(b *bench) error { return b.ForeignCopy(1<<40, 1<<41, 1) },
		"join":  func(b *bench) error { return b.Join(3, 0, gomem.Wait{}) },
	} {
		b := open(t, fakedriver.Options{})
		b.allocate(1) // it cannot be given back any more
		b.driver.Lose()
		var lost *gomem.LostError
		require.ErrorAs(t, access(b), &lost, name)
		calls := b.driver.Calls(fakedriver.Allocate)
		_, err := b.Allocate(1, gomem.AllocateOptions{})
		require.ErrorAs(t, err, &lost, name)
		require.Equal(t, calls, b.driver.Calls(fakedriver.Allocate), name)
		require.ErrorAs(t, access(b), &lost, name)
	}
}

// A stream that the driver does not know is the caller's mistake, named by what the caller gave.
func TestUnknownStreamIsTheCallersMistake(t *testing.T) {
	for name, use := range map[string]func(b *bench) error{
		"to the device":   func(b *bench) error { return b.Join(0xbad, 0, gomem.Wait{}) },
		"from the device": func(b *bench) error { return b.Join(0, 0xbad, gomem.Wait{}) },
		"of what is adopted": func(b *bench) error {
			_, err := b.Adopt(1<<40, 8, gomem.AdoptOptions{How: gomem.HowCUDA, Stream: 0xbad})
			return err
		},
	} {
		b := open(t, fakedriver.Options{})
		b.driver.Fail(fakedriver.Join, 1, b.driver.Error(fakedriver.Join, gomem.ErrInvalidHandle))
		var stream *gomem.StreamError
		require.ErrorAs(t, use(b), &stream, name)
		require.EqualValues(t, 0xbad, stream.Stream)
		require.ErrorContains(t, stream, "stream 0xbad is not a stream of fake:0")
		require.Zero(t, b.info().Reserved, name)
		b.driver.Fail(fakedriver.Join, 1, b.driver.Error(fakedriver.Join, nil))
		err := use(b)
		require.Error(t, err)
		require.NotErrorAs(t, err, &stream, "any other error is the driver's")
	}
}
