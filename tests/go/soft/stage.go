package soft

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
)

// BlockBytes is the size of a Stage's blocks.
const BlockBytes = 64 << 10

// Stage is a device with two blocks of BlockBytes, a host's block, and host memory: what Calls work on.
type Stage struct {
	A, B   uint64
	Memory unsafe.Pointer
	Blocks []gomem.Block // what the call under test has made, and the stage's own; the host's is the first
	on     gomem.Driver
}

// SetStage takes a device with work queued and a free that waits, so that every path has something to do. host makes what a host has on it, once the
// device has been used: a block that it allocates by itself.
func SetStage(t testing.TB, driver gomem.Driver, host func() gomem.Block) Stage {
	t.Helper()
	s := Stage{on: driver}
	_, s.Memory = Bytes(t, BlockBytes)
	allocate := func(nbytes uint64) uint64 {
		address, err := driver.Allocate(nbytes)
		require.NoError(t, err)
		return address
	}
	s.A, s.B = allocate(BlockBytes), allocate(BlockBytes)
	s.Blocks = append(s.Blocks, host())
	const waits = 4000
	extra := allocate(waits)
	s.Blocks = append(s.Blocks, gomem.Block{Address: allocate(3000), Bytes: 3000})
	require.NoError(t, driver.Fill(s.A, []byte{5}, BlockBytes))
	require.NoError(t, driver.Free(gomem.Block{Address: extra, Bytes: waits}))
	return s
}

// Clear frees everything, and sets no host's stream any more.
func (s *Stage) Clear(t testing.TB) {
	t.Helper()
	for _, block := range append(s.Blocks, gomem.Block{Address: s.A, Bytes: BlockBytes}, gomem.Block{Address: s.B, Bytes: BlockBytes}) {
		require.NoError(t, s.on.Free(block))
	}
	require.NoError(t, s.on.SetStream(0, 0))
}

// Call is one call of a driver on a stage, S: Stage, or what a package's own has beside it.
type Call[S any] struct {
	Name string
	Run  func(s S) error
}

// calls is every method of a Driver that can call the library and needs no host's stream, in the variants that take different paths.
var calls = []Call[*Stage]{
	{"Allocate", func(s *Stage) error {
		address, err := s.on.Allocate(1000)
		if err == nil {
			s.Blocks = append(s.Blocks, gomem.Block{Address: address, Bytes: 1000})
		}
		return err
	}},
	{"Free", func(s *Stage) error {
		block := s.Blocks[len(s.Blocks)-1]
		s.Blocks = s.Blocks[:len(s.Blocks)-1]
		return s.on.Free(block)
	}},
	{"Free of a host's block", func(s *Stage) error {
		block := s.Blocks[0]
		s.Blocks = s.Blocks[1:]
		return s.on.Free(block)
	}},
	{"CopyOut", func(s *Stage) error { return s.on.CopyOut(s.Memory, s.A, BlockBytes) }},
	{"CopyIn", func(s *Stage) error { return s.on.CopyIn(s.A, s.Memory, BlockBytes) }},
	{"CopyWithin", func(s *Stage) error { return s.on.CopyWithin(s.B, s.A, BlockBytes) }},
	{"CopyWithin, a few steps", func(s *Stage) error { return s.on.CopyWithin(s.A, s.A+BlockBytes/4, BlockBytes*3/4) }},
	{"CopyWithin, by a detour", func(s *Stage) error { return s.on.CopyWithin(s.A+8, s.A, BlockBytes-8) }},
	{"Fill with a byte", func(s *Stage) error { return s.on.Fill(s.A, []byte{1}, BlockBytes) }},
	{"Fill with 2 bytes", func(s *Stage) error { return s.on.Fill(s.A, []byte{1, 2}, BlockBytes-1) }},
	{"Fill with 4 bytes", func(s *Stage) error { return s.on.Fill(s.A, []byte{1, 2, 3, 4}, BlockBytes-1) }},
	{"Fill with 7 bytes", func(s *Stage) error { return s.on.Fill(s.A, []byte{1, 2, 3, 4, 5, 6, 7}, BlockBytes) }},
	{"Synchronize", func(s *Stage) error { return s.on.Synchronize() }},
	{"Trim", func(s *Stage) error { _, err := s.on.Trim(); return err }},
	{"Memory", func(s *Stage) error { _, err := s.on.Memory(); return err }},
	{"SetStream, none", func(s *Stage) error { return s.on.SetStream(0, 0) }},
}

// Calls are the calls that every driver has, on the Stage of a package's own scene, and those that only this package has.
func Calls[S any](stage func(S) *Stage, more ...Call[S]) []Call[S] {
	all := make([]Call[S], 0, len(calls)+len(more))
	for _, c := range calls {
		all = append(all, Call[S]{c.Name, func(s S) error { return c.Run(stage(s)) }})
	}
	return append(all, more...)
}
