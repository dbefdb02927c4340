package gomem_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// filling calls the test while a buffer is being made: it has its memory, and is no buffer yet.
type filling struct {
	*fakedriver.Device
	inFill func()
}

func (f *filling) Fill(address uint64, pattern []byte, nbytes uint64) error {
	if f.inFill != nil {
		f.inFill()
	}
	return f.Device.Fill(address, pattern, nbytes)
}

// A device with a buffer that is being made, or with room that somebody was promised, is not closed, and goes on.
func TestADeviceIsNotClosedUnderWhatIsOnItsWay(t *testing.T) {
	driver := &filling{Device: fakedriver.New(fakedriver.Options{})}
	device, err := gomem.NewDevice(driver, gomem.Options{Movable: true})
	require.NoError(t, err)
	var closing error
	driver.inFill = func() { closing = device.Close() }
	index, err := device.Allocate(8, gomem.AllocateOptions{Zero: true})
	require.NoError(t, err)
	require.ErrorContains(t, closing, "are reserved")
	device.Drop(index)

	driver.inFill = nil
	token, err := device.Reserve(8, gomem.AllocateOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, device.Close(), "8 bytes are reserved")
	device.Unreserve(token)

	driver.Fail(fakedriver.Close, 1, driver.Error(fakedriver.Close, nil))
	require.Error(t, device.Close())
	index, err = device.Allocate(0, gomem.AllocateOptions{})
	require.NoError(t, err, "a device that could not be closed goes on")
	device.Drop(index)
	require.NoError(t, device.Close())
	_, err = device.Allocate(0, gomem.AllocateOptions{})
	require.ErrorContains(t, err, "closed")
	require.Zero(t, device.Books().InUse, "the figures can be read")
}
