package levelzero_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestMemoryOfNoDeviceThatIsListed: a part of our device (a tile) has a handle of its own, and a driver may give none. Such memory is adopted.
func TestMemoryOfNoDeviceThatIsListed(t *testing.T) {
	for name, handle := range map[string]int{"a tile": 0x1234, "none": 0} {
		t.Run(name, func(t *testing.T) {
			loader := patched(t, fmt.Sprintf(`
				struct properties { int kind; void *next; int type; unsigned long long id, page; };
				int zeMemGetAllocProperties(void *context, const void *address, struct properties *properties, void **device) {
					properties->type = 2;
					properties->id = properties->page = 0;
					if (device) *device = (void *)%d;
					return 0;
				}`, handle))
			library, err := levelzero.Load(loader, []dl.Candidate{{Name: soft.Library(t, soft.LevelZero)}})
			require.NoError(t, err)
			driver, err := library.Open("level_zero:0", 0)
			require.NoError(t, err)
			address, err := driver.Allocate(100)
			require.NoError(t, err)
			require.NoError(t, driver.Examine(gomem.Block{Address: address, Bytes: 100, How: gomem.HowLevelZero}))
			require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
			require.NoError(t, driver.Synchronize())
			assert.NoError(t, driver.Close())
		})
	}
}

// TestDriverThatRefusesAnotherContextsAddress: some answer "invalid argument" where they are asked for memory that is none of the context's. It is the same
// answer as "unknown": memory in the other of our two contexts is copied, filled and freed all the same.
func TestDriverThatRefusesAnotherContextsAddress(t *testing.T) {
	const invalidArgument = 0x78000004
	for _, mode := range hostModes {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			context := r.host.context()
			refusing := func(nth int) {
				require.NoError(t, r.Software.Fail("zeMemGetAllocProperties", nth, invalidArgument))
			}
			content := soft.Noise(5000, 1)
			own, same := r.Allocate(5000), r.Allocate(5000)
			require.NoError(t, r.Driver.SetStream(context, 0))
			theirs := r.Allocate(5000)
			refusing(1)
			r.Write(own, content)
			refusing(1)
			assert.Equal(t, content, r.Read(own, 5000))
			refusing(2) // asked for the source; the destination lies in the context that is asked
			require.NoError(t, r.Driver.CopyWithin(theirs, own, 5000))
			assert.Equal(t, content, r.Read(theirs, 5000))
			refusing(1)
			require.NoError(t, r.Driver.CopyWithin(same, own, 5000))
			assert.Equal(t, content, r.Read(same, 5000))

			refusing(1)
			r.Free(theirs, 5000) // one of ours, in the host's context: our own is asked first
			r.Free(same, 5000)
			require.NoError(t, r.Driver.Synchronize())
			require.NoError(t, r.Driver.SetStream(0, 0))
			second := r.host.context()
			require.NoError(t, r.Driver.SetStream(second, 0), "nothing is thought to lie in the first context")
			r.Free(own, 5000)
			require.NoError(t, r.Driver.SetStream(0, 0))
			r.host.Must("zeContextDestroy", context)
			r.host.Must("zeContextDestroy", second)
		})
	}
}

// TestFreedMemoryIsNobodysToAdopt: while a freed block waits for the device, the driver knows it as before.
func TestFreedMemoryIsNobodysToAdopt(t *testing.T) {
	for _, mode := range hostModes {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			require.NoError(t, r.Software.Set("delay_us", 100_000))
			const nbytes = 64 << 10
			a := r.Allocate(nbytes)
			block := gomem.Block{Address: a, Bytes: nbytes, How: gomem.HowLevelZero}
			require.NoError(t, r.Driver.Examine(block))
			require.NoError(t, r.Driver.Fill(a, []byte{1}, nbytes))
			r.Free(a, nbytes)
			require.EqualValues(t, nbytes, r.Driver.PendingFree())
			soft.RequireFreed(t, r.Driver, block, a, a+nbytes-1)
			require.NoError(t, r.Software.Set("delay_us", 0))
		})
	}
}
