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

func TestAStackStandsForItsLine(t *testing.T) {
	line := Intern("stack test.py:7")
	stack := InternStack("stack test.py:7 f\nstack test.py:9 g", line)
	require.NotEqual(t, line, stack)
	require.Equal(t, stack, InternStack("stack test.py:7 f\nstack test.py:9 g", line))
	require.NotEqual(t, stack, InternStack("stack test.py:7 f\nstack test.py:10 g", line))
	require.Equal(t, []uint32{line, line, 0}, []uint32{OriginLine(stack), OriginLine(line), OriginLine(0)})
	require.Equal(t, []string{"stack test.py:7", "stack test.py:7", ""}, []string{OriginText(stack), OriginText(line), OriginText(0)})
	require.Equal(t, []string{"stack test.py:7 f", "stack test.py:9 g"}, OriginStack(stack))
	require.Nil(t, OriginStack(line))
	require.Nil(t, OriginStack(0))
	require.Nil(t, OriginStack(1<<31))
}

func TestALabelWithTheTextOfAStackIsNone(t *testing.T) {
	label, line := Intern("both.py:1 f"), Intern("both.py:1")
	stack := InternStack("both.py:1 f", line)
	require.NotEqual(t, label, stack)
	require.Nil(t, OriginStack(label))
	require.Equal(t, []string{"both.py:1 f"}, OriginStack(stack))
	require.Equal(t, stack, InternStack("both.py:1 f", line))
	require.Equal(t, label, Intern("both.py:1 f"))
}

func TestStacksLeaveRoomForLinesAndLabels(t *testing.T) {
	byCount := newTextTable(8, 1<<20)
	line := byCount.intern("a:1")
	first := byCount.internStack("a:1 f", line)
	require.Equal(t, uint32(3), first)
	require.Equal(t, line, byCount.internStack("a:1 g", line), "the line stands for it")
	require.Equal(t, first, byCount.internStack("a:1 f", line), "what is known stays known")
	for i := range 4 {
		require.NotEqual(t, byCount.other, byCount.intern(fmt.Sprint(i)))
	}

	byBytes := newTextTable(100, 20)
	line = byBytes.intern("a:1")
	require.Equal(t, line, byBytes.internStack("12345678", line))
	require.NotEqual(t, line, byBytes.internStack("1234567", line))
	require.NotEqual(t, byBytes.other, byBytes.intern("1234567890"))
}
