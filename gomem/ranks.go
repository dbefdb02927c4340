package gomem

// The lock order of this package, as data. A goroutine that holds a lock may take only locks of a higher rank. Builds with the tag
// `invariants` check it at each acquisition (ranks_on.go); others pay nothing (ranks_off.go).
//
// Outside of these are a host's own locks and Python's GIL: whoever holds the moving lock never waits for either.

type rank uint8

const (
	_ rank = iota // no lock
	// rankTurnstile: the first-come queue of launches that wait for room.
	rankTurnstile
	// rankMoving: the lock of one device for moving memory; the only one that is held across calls into a driver.
	rankMoving
	// rankDraining: the dropped buffers of one device are being freed. Held across calls into a driver, like moving, but for nothing else; so who has the
	// moving lock of another device may wait for it.
	rankDraining
	// rankStays: who reads or thins the stays that ended (stays.go), one at a time. Only readers wait for it.
	rankStays
	// rankRegistry: which records are in use. This one and those below are leaves: they are held for moments, and no other lock is taken under
	// them.
	rankRegistry
	// rankHolds: holds and exports by buffer, with their reasons.
	rankHolds
	// rankAddresses: the index from device addresses to records.
	rankAddresses
	// rankPool: the pool of host memory.
	rankPool
	// rankBooks: the spin lock of the counters.
	rankBooks
)

var rankNames = [...]string{"none", "turnstile", "moving", "draining", "stays", "registry", "holds", "addresses", "host pool", "books"}

func (r rank) String() string { return rankNames[r] }
