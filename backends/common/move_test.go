//go:build cgo

package common

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInPieces runs the pieces over an array through scratch memory: the result is that of one copy, whatever the overlap and the size.
func TestInPieces(t *testing.T) {
	const n = 60
	for size := uint64(1); size <= 12; size++ {
		for destination := range uint64(20) {
			for source := range uint64(20) {
				var memory, want [n + 20]int
				for i := range memory {
					memory[i] = i
				}
				want = memory
				copy(want[destination:destination+n], memory[source:source+n])
				var scratch [12]int
				require.NoError(t, inPieces(destination, source, n, size, func(to, from, count uint64) error {
					require.LessOrEqual(t, count, size)
					copy(scratch[:count], memory[from:from+count])
					copy(memory[to:to+count], scratch[:count])
					return nil
				}))
				require.Equal(t, want, memory, "from %d to %d by %d", source, destination, size)
			}
		}
	}
}

func TestInPiecesStopsAtAnError(t *testing.T) {
	calls := 0
	err := inPieces(0, 1, 10, 3, func(uint64, uint64, uint64) error { calls++; return ErrClosed })
	assert.ErrorIs(t, err, ErrClosed)
	assert.Equal(t, 1, calls)
}

func TestSmallestPeriod(t *testing.T) {
	for pattern, want := range map[string]int{"a": 1, "aa": 1, "ab": 2, "aba": 3, "abab": 2, "aaaaaaaa": 1, "abcabc": 3, "abcdabcd": 4, "aabaab": 3, "abcdefgh": 8, "ababa": 5} {
		assert.Equal(t, want, smallestPeriod([]byte(pattern)), pattern)
	}
}
