package gomem_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

const deviceDomain = 1 << 1

// told makes a ring of so many slots, has all devices write into it until the test ends, and returns it.
func told(t *testing.T, slots int) *gomem.ToldRing {
	memory := make([]gomem.ToldSlot, slots)
	ring := &gomem.ToldRing{Active: deviceDomain, Mask: uint32(slots - 1), Slots: unsafe.Pointer(&memory[0])}
	gomem.Tell(ring)
	t.Cleanup(func() { gomem.Tell(nil) })
	return ring
}

// take is what bindings/events/ring.c does.
func take(ring *gomem.ToldRing) (slots []gomem.ToldSlot) {
	all := unsafe.Slice((*gomem.ToldSlot)(ring.Slots), int(ring.Mask)+1)
	for {
		lap := ring.Tail &^ uint64(ring.Mask)
		slot := &all[ring.Tail&uint64(ring.Mask)]
		if atomic.LoadUint64(&slot.Turn) != 2*lap+1 {
			return slots
		}
		slots = append(slots, *slot)
		atomic.StoreUint64(&slot.Turn, 2*(lap+uint64(ring.Mask)+1))
		ring.Tail++
	}
}

type tale struct {
	kind, reason uint32
	from, to     uint64
	size         uint64
}

const (
	isNew, isFree, isRenew             = 1, 2, 3
	plain, byAdopt, bySpill, byRestore = 0, 1, 2, 3
)

func tales(slots []gomem.ToldSlot) (list []tale) {
	for _, s := range slots {
		list = append(list, tale{uint32(s.Event.Kind), s.Event.Reason, s.Event.Old, s.Event.New, max(s.Event.OldSize, s.Event.NewSize)})
	}
	return list
}

func TestTellALifeWithSpillAndRestore(t *testing.T) {
	d := open(t, fakedriver.Options{})
	ring := told(t, 16)
	cause := gomem.Cause(4711 | 2<<22)
	index, err := d.Allocate(100, gomem.AllocateOptions{Wait: gomem.Wait{Cause: cause}, Origin: 9})
	require.NoError(t, err)
	first := d.Record(index).Address
	_, err = d.Spill(index, gomem.Wait{Cause: cause})
	require.NoError(t, err)
	require.NoError(t, d.MakeResident(index, gomem.Wait{Cause: cause}))
	second := d.Record(index).Address
	d.LetGoFor(index, cause)
	slots := take(ring)
	host := slots[1].Event.New
	require.Equal(t, []tale{
		{isNew, plain, 0, first, 100}, {isRenew, bySpill, first, host, 100}, {isRenew, byRestore, host, second, 100}, {isFree, plain, second, 0, 100},
	}, tales(slots))
	for _, s := range slots {
		require.EqualValues(t, 2, s.Nest)
		require.EqualValues(t, 4711, s.Event.Thread)
		require.EqualValues(t, 9, s.Event.Site)
		require.EqualValues(t, unsafe.Sizeof(s.Event), s.Event.Length)
		require.Zero(t, s.Event.Sequence, "who takes it numbers it")
	}
	d.Drain()
}

func TestTellTheEndOfWhatIsSpilledAtTheAddressOfItsHostCopy(t *testing.T) {
	d := open(t, fakedriver.Options{})
	ring := told(t, 16)
	index, err := d.Allocate(100, gomem.AllocateOptions{})
	require.NoError(t, err)
	_, err = d.Spill(index, gomem.Wait{})
	require.NoError(t, err)
	d.Drop(index)
	list := tales(take(ring))
	require.Len(t, list, 3)
	require.Equal(t, tale{isFree, plain, list[1].to, 0, 100}, list[2])
}

// Its record forgets the address at once, since the host may get it again; the event must not.
func TestTellTheEndOfWhatItsHostFreesAtItsAddress(t *testing.T) {
	d := open(t, fakedriver.Options{})
	ring := told(t, 16)
	const address = 1 << 40
	index, err := d.Adopt(address, 100, gomem.AdoptOptions{How: gomem.HowHost, Unmovable: true})
	require.NoError(t, err)
	d.LetGo(index)
	require.Equal(t, []tale{{isNew, byAdopt, 0, address, 100}, {isFree, plain, address, 0, 100}}, tales(take(ring)))
	d.Drain()
}

func TestTellNothingWhereNobodyListensOrThereAreNoBytes(t *testing.T) {
	d := open(t, fakedriver.Options{})
	ring := told(t, 16)
	index, err := d.Allocate(0, gomem.AllocateOptions{})
	require.NoError(t, err)
	d.Drop(index)
	ring.Active = ^uint32(deviceDomain) // others' domains
	index, err = d.Allocate(10, gomem.AllocateOptions{})
	require.NoError(t, err)
	d.Drop(index)
	require.Empty(t, take(ring))
}

func TestTellCountsWhatHasNoPlace(t *testing.T) {
	d := open(t, fakedriver.Options{})
	ring := told(t, 8)
	for range 10 {
		index, err := d.Allocate(10, gomem.AllocateOptions{})
		require.NoError(t, err)
		d.Drop(index)
	}
	require.Len(t, take(ring), 8)
	require.EqualValues(t, 12, ring.Dropped)
	index, err := d.Allocate(10, gomem.AllocateOptions{})
	require.NoError(t, err)
	d.Drop(index)
	require.Len(t, take(ring), 2, "it goes on in the next lap")
	require.EqualValues(t, 12, ring.Dropped)
}

// Many goroutines write and one takes: what lives, by address, is right at every event.
func TestTellInOrderFromManyGoroutines(t *testing.T) {
	d := open(t, fakedriver.Options{})
	ring := told(t, 1<<13)
	live, events := map[uint64]bool{}, 0
	check := func() {
		for _, one := range tales(take(ring)) {
			events++
			if one.from != 0 {
				require.True(t, live[one.from], "%+v: nothing lives there", one)
				delete(live, one.from)
			}
			if one.to != 0 {
				require.False(t, live[one.to], "%+v: something lives there", one)
				live[one.to] = true
			}
		}
	}
	const goroutines, rounds = 8, 200
	var done sync.WaitGroup
	for range goroutines {
		done.Go(func() {
			for range rounds {
				index, err := d.Allocate(64, gomem.AllocateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := d.Spill(index, gomem.Wait{}); err != nil {
					t.Error(err)
				}
				if err := d.MakeResident(index, gomem.Wait{}); err != nil {
					t.Error(err)
				}
				d.Drop(index)
			}
		})
	}
	ended := make(chan struct{})
	go func() { done.Wait(); close(ended) }()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		default:
		}
		check()
	}
	check()
	require.Empty(t, live)
	require.Zero(t, ring.Dropped)
	require.GreaterOrEqual(t, events, 2*goroutines*rounds)
}
