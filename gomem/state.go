package gomem

import (
	"fmt"
	"sync/atomic"
)

// legal lists every change of state: legal[from] has the states that may follow. A record with Dropped set changes once more, to
// Free, by retireLocked; all other changes need Dropped to be clear, so a dropped buffer stays as it is until it is drained.
var legal = [...][]State{
	Free:      {Building},
	Building:  {Resident, Spilled, Free}, // built, or begun in host memory (Receive), or its driver call failed
	Resident:  {Spilling},                // chosen as a victim
	Spilling:  {Spilled, Resident},       // host copy complete, or put back (held, failed, no longer wanted)
	Spilled:   {Restoring},               // a device use wants it
	Restoring: {Resident, Spilled},       // device copy complete, or failed
}

var stateNames = [...]string{"free", "building", "resident", "spilling", "spilled", "restoring"}

// String is the state's name as reports print it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint32(s))
}

// StateOf splits a record's word.
func StateOf(word uint32) (state State, dropped bool) {
	return State(word & stateMask), word&Dropped != 0
}

// word reads state and Dropped in one load, with acquire order: what was written before the state was set is visible.
func (r *Record) word() uint32 { return atomic.LoadUint32(&r.Word) }

// state is the state without the Dropped bit.
func (r *Record) state() State { return State(r.word() & stateMask) }

// is reports whether the record is in this state and not dropped.
func (r *Record) is(s State) bool { return r.word() == uint32(s) }

// transition changes the state of a buffer that was not dropped. It returns false, and changes nothing, when the record is not (or
// no longer) in state from, or was dropped. It is the only function that changes a state, retireLocked aside.
func (r *Record) transition(from, to State) bool {
	if !isLegal(from, to) {
		panic(fmt.Sprintf("gomem: no transition from %v to %v", from, to))
	}
	return atomic.CompareAndSwapUint32(&r.Word, uint32(from), uint32(to))
}

func isLegal(from, to State) bool {
	for _, s := range legal[from] {
		if s == to {
			return true
		}
	}
	return false
}
