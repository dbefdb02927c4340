package conformance

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// visible is a library that nobody has started, with three devices, of which the vendor's variable hides some; "-" where it is not set.
func (v *vendor) visible(t *testing.T, list string) library {
	t.Helper()
	t.Setenv(v.mask, list)
	if list == "-" {
		require.NoError(t, os.Unsetenv(v.mask))
	}
	found, err := v.load([]dl.Candidate{{Name: soft.Fresh(t, v.abi)}})
	require.NoError(t, err)
	for key, value := range (settings{"devices": 3, "masks": 1}) {
		require.NoError(t, found.Software().Set(key, value))
	}
	return found
}

// TestVisibleDevices: the vendor's variable says which devices there are. Their ordinals count what is visible, and the UUIDs say which those are.
func TestVisibleDevices(t *testing.T) {
	for _, v := range []*vendor{&cudaVendor, &hipVendor, &levelZeroVendor} {
		t.Run(v.abi, onThread(func(t *testing.T) {
			t.Setenv("CUDA_VISIBLE_DEVICES", "") // HIP looks there, too, where its own list is empty
			require.NoError(t, os.Unsetenv("CUDA_VISIBLE_DEVICES"))
			var all []string
			l := v.visible(t, "-")
			for ordinal := range 3 {
				uuid, err := l.UUID(ordinal)
				require.NoError(t, err)
				assert.NotEmpty(t, uuid)
				assert.NotContains(t, all, uuid)
				all = append(all, uuid)
			}
			inOrder, none := []int{2, 0}, []int{} // CUDA's
			switch v.abi {
			case soft.HIP:
				none = []int{0, 1, 2} // an empty list is as good as no list
			case soft.LevelZero:
				inOrder, none = []int{0, 2}, []int{0, 1, 2} // a set, and so is an empty one
			}
			cases := map[string][]int{"-": {0, 1, 2}, "1": {1}, "2,0": inOrder, "0,1,2": {0, 1, 2}, "9": {}, "": none}
			if v.abi != soft.LevelZero {
				cases[all[2]+","+all[0]] = inOrder
				cases["1,9,0"] = []int{1}
			}
			for list, want := range cases {
				t.Run(fmt.Sprintf("%q", list), onThread(func(t *testing.T) { v.sees(t, list, all, want) }))
			}
		}))
	}
}

func (v *vendor) sees(t *testing.T, list string, all []string, want []int) {
	t.Helper()
	l := v.visible(t, list)
	count, err := l.Count()
	require.NoError(t, err, "no device is no error")
	require.Equal(t, len(want), count)
	for ordinal, number := range want {
		uuid, err := l.UUID(ordinal)
		require.NoError(t, err)
		assert.Equal(t, all[number], uuid)
	}
	_, err = l.UUID(len(want))
	assert.Error(t, err, "what is hidden cannot be had")
	if count > 0 {
		last := count - 1
		driver, err := v.openPlain(l, last)
		require.NoError(t, err)
		address, err := driver.Allocate(1000)
		require.NoError(t, err)
		live, err := l.Software().Get(fmt.Sprintf("live.%d", last))
		require.NoError(t, err)
		assert.Positive(t, live, "the driver's device is the one of this ordinal")
		require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 1000}))
		require.NoError(t, driver.Close())
	}
}

// openPlain opens a device as it is without a host framework.
func (v *vendor) openPlain(l library, ordinal int) (gomem.Driver, error) {
	if loader, yes := l.(levelZeroLibrary); yes {
		return loader.Open("a device", ordinal)
	}
	return l.OpenDriver("a device", ordinal)
}
