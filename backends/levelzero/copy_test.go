package levelzero_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFill compares every length of pattern, at every alignment, with a few lengths around the edges; what lies around the range stays.
// The device takes patterns of any power of two, or short ones only.
func TestFill(t *testing.T) {
	for _, mode := range []settings{{}, {"fill_pattern": 1}, {"fill_pattern": 6}, {"api_version": version(4)}, {"api_version": version(4), "fill_pattern": 2}} {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			const room = 600
			a := r.allocate(room)
			background := noise(room, 1)
			for length := 1; length <= 16; length++ {
				pattern := noise(length, uint32(100+length))
				for _, offset := range []int{0, 1, 2, 3, 5, 8, 15, 16} {
					for _, n := range []int{1, 3, 4, 5, length, length + 1, 3*length - 1, 16 * length, 500} {
						r.write(a, background)
						require.NoError(t, r.driver.Fill(a+uint64(offset), pattern, uint64(n)))
						want := bytes.Clone(background)
						copy(want[offset:offset+n], bytes.Repeat(pattern, n))
						require.Equal(t, want, r.read(a, room), "pattern of %d at +%d over %d", length, offset, n)
					}
				}
			}
			r.free(a, room)
		})
	}
}

func TestFillUsesTheShortestForm(t *testing.T) {
	r := open(t, nil, 0)
	a := r.allocate(1 << 20)
	before := r.software.Calls("*")
	require.NoError(t, r.driver.Fill(a, make([]byte, 16), 1<<20))
	assert.Equal(t, 1, r.software.Calls("*")-before, "sixteen zeros are one fill, and an in-order list needs nothing else")
	require.NoError(t, r.driver.Fill(a, []byte{1, 2, 1, 2, 1, 2}, 1<<20))
	assert.Equal(t, 2, r.software.Calls("zeCommandListAppendMemoryFill"))
	assert.Error(t, r.driver.Fill(a, nil, 1))
	assert.Error(t, r.driver.Fill(a, make([]byte, 17), 1))
	r.free(a, 1<<20)
}

// TestCopyWithin is memmove, for ranges that overlap a little, much, and not at all.
func TestCopyWithin(t *testing.T) {
	for _, full := range []bool{false, true} {
		for _, mode := range modes {
			t.Run(fmt.Sprint(mode, "/full=", full), func(t *testing.T) {
				r := open(t, mode, 0)
				const n = 300_000
				a := r.allocate(n)
				for full { // nothing is left for a detour
					filler, err := r.driver.Allocate(32 << 10)
					if err != nil {
						break
					}
					defer r.free(filler, 32<<10)
				}
				for _, distance := range []int{0, 1, 8, 1000, n / 33, n / 3, n / 2, n - 1} {
					for _, up := range []bool{true, false} {
						content := noise(n, uint32(distance))
						r.write(a, content)
						to, from := distance, 0
						if !up {
							to, from = from, to
						}
						want := bytes.Clone(content)
						copy(want[to:to+n-distance], content[from:])
						require.NoError(t, r.driver.CopyWithin(a+uint64(to), a+uint64(from), uint64(n-distance)))
						require.True(t, bytes.Equal(want, r.read(a, n)), "distance %d, up %v", distance, up)
					}
				}
				r.free(a, n)
			})
		}
	}
}

// TestDetourIsShort: moving by a few bytes does not make a copy for each few bytes.
func TestDetourIsShort(t *testing.T) {
	r := open(t, nil, 0)
	a := r.allocate(1 << 20)
	before := r.software.Calls("zeCommandListAppendMemoryCopy")
	require.NoError(t, r.driver.CopyWithin(a+1, a, 1<<20-1))
	assert.LessOrEqual(t, r.software.Calls("zeCommandListAppendMemoryCopy")-before, 4)
	r.free(a, 1<<20)
}
