package gomem_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// However much is asked for, no counter passes the range of its type: what cannot be counted is refused, and what was counted before stays as it was.
func TestCountersDoNotWrap(t *testing.T) {
	const huge = 1 << 60
	for name, change := range map[string]func(b *bench){
		"no budget":     func(*bench) {},
		"soft budget":   func(b *bench) { b.budget(1, false) },
		"budget of all": func(b *bench) { b.budget(math.MaxInt64, true) },
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, fakedriver.Options{}) // whose total is unknown
			change(b)
			var tokens []uint64
			var full *gomem.MemoryError
			for i := int64(1); ; i++ {
				token, err := b.Reserve(huge, gomem.AllocateOptions{})
				if err != nil {
					require.ErrorAs(t, err, &full)
					require.Equal(t, gomem.ReasonTooLarge, full.Reason)
					require.EqualValues(t, huge*(i-1), b.info().Reserved)
					break
				}
				tokens = append(tokens, token)
				require.EqualValues(t, huge*i, b.info().Reserved)
			}
			require.Len(t, tokens, 7)
			for _, token := range tokens {
				b.Unreserve(token)
			}
			require.Zero(t, b.info().Reserved)
		})
	}
}

// The same for memory that is adopted: what is in use and what is reserved share the range.
func TestAdoptedBytesDoNotWrap(t *testing.T) {
	const huge = 1 << 60
	b := open(t, fakedriver.Options{}, func(o *gomem.Options) { o.Movable = false })
	var adopted []uint32
	var full *gomem.MemoryError
	for i := uint64(1); i < 15; i++ {
		index, err := b.Adopt(i*huge, huge, gomem.AdoptOptions{How: gomem.HowHost, Unmovable: true})
		if err != nil {
			require.ErrorAs(t, err, &full)
			require.Equal(t, gomem.ReasonTooLarge, full.Reason)
			break
		}
		adopted = append(adopted, index)
	}
	require.Len(t, adopted, 7)
	require.EqualValues(t, 7*huge, b.info().InUse)
	b.drop(adopted...)
}

// More than the device has is refused at once, also without a budget.
func TestMoreThanTheDeviceHasIsNotReserved(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: mib})
	var full *gomem.MemoryError
	_, err := b.Reserve(mib+1, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonTooLarge, full.Reason)
	require.Zero(t, b.info().Reserved)
}

// A buffer that is on the device needs no room to be given away, launched on, or told that it is held: a budget that is smaller than it says nothing of that.
func TestABudgetSmallerThanABufferThatIsThere(t *testing.T) {
	b := open(t, fakedriver.Options{})
	mine := b.allocate(2 * kib)
	id, err := b.Hold(mine, gomem.HoldScope, 0, gomem.Wait{})
	require.NoError(t, err)
	b.budget(kib, true)
	var busy *gomem.BusyError
	_, err = b.Disown(mine, gomem.Wait{})
	require.ErrorAs(t, err, &busy)
	require.NoError(t, b.Admit([]uint32{mine}, gomem.Wait{}))
	b.Discharge([]uint32{mine})
	b.Release(mine, id)
	at := b.Record(mine).Address
	address, err := b.Disown(mine, gomem.Wait{})
	require.NoError(t, err)
	require.Equal(t, at, address)
	require.NoError(t, b.driver.Free(gomem.Block{Address: address, Bytes: 2 * kib}))

	// A spilled one does need room, and is refused as before.
	b.budget(-1, false)
	mine = b.allocate(2 * kib)
	b.budget(kib, true)
	require.Equal(t, gomem.Spilled, b.state(mine))
	var full *gomem.MemoryError
	_, err = b.Disown(mine, gomem.Wait{})
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonTooLarge, full.Reason)
	b.drop(mine)
}
