package gomem

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInternGivesEqualTextsOneNumber(t *testing.T) {
	require.Zero(t, Intern(""))
	require.Equal(t, "", Text(0))
	require.Equal(t, "", Text(1<<31))
	var ids [8][1000]uint32
	var workers sync.WaitGroup
	for w := range ids {
		workers.Go(func() {
			for i := range ids[w] {
				ids[w][i] = Intern(fmt.Sprintf("intern test %d", i))
				if got := Text(ids[w][i]); got != fmt.Sprintf("intern test %d", i) {
					t.Errorf("number %d is %q", ids[w][i], got)
				}
			}
		})
	}
	workers.Wait()
	seen := make(map[uint32]bool)
	for i := range ids[0] {
		for w := range ids {
			require.Equal(t, ids[0][i], ids[w][i])
		}
		seen[ids[0][i]] = true
	}
	require.Len(t, seen, len(ids[0]))
}

func TestInternIsBounded(t *testing.T) {
	byCount := newTextTable(5, 1<<20)
	for i := range 3 {
		require.NotEqual(t, byCount.other, byCount.intern(fmt.Sprint(i)))
	}
	require.Equal(t, textOther, byCount.text(byCount.intern("one more")))
	require.Equal(t, "2", byCount.text(byCount.intern("2")), "what is known stays known")

	byBytes := newTextTable(100, 10)
	byBytes.intern("12345678")
	require.Equal(t, textOther, byBytes.text(byBytes.intern("123")))
	require.Equal(t, "12", byBytes.text(byBytes.intern("12")))
}

func BenchmarkIntern(b *testing.B) {
	text := strings.Repeat("x", 40)
	for b.Loop() {
		Intern(text)
	}
}
