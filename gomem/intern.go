package gomem

import (
	"strings"
	"sync"
	"sync/atomic"
)

// Labels, origins and reasons are strings that repeat: a record's companion keeps a number for each, not the text. A number
// stands for its text as long as the process lives.

// Programs label with generated names too ("tile 4711"), and nothing here is ever forgotten; beyond these limits every new text gets the
// number of textOther. 2^20 entries take some 100 MiB at worst.
const (
	maxInterned      = 1 << 20
	maxInternedBytes = 64 << 20
	textOther        = "(other)"
)

// texts is the table of one process. Reading takes no lock.
var texts = newTextTable(maxInterned, maxInternedBytes)

type textTable struct {
	maxCount, maxBytes int

	numbers sync.Map                 // string -> uint32
	list    atomic.Pointer[[]string] // by number; only ever longer, old elements are never written again

	mu    sync.Mutex // guards adding: bytes, and the storing of list and numbers
	bytes int
	other uint32
}

func newTextTable(maxCount, maxBytes int) *textTable {
	t := &textTable{maxCount: maxCount, maxBytes: maxBytes, other: 1}
	list := []string{"", textOther}
	t.list.Store(&list)
	t.numbers.Store("", uint32(0))
	t.numbers.Store(textOther, t.other)
	return t
}

// Intern returns the number of a text, the same one for equal texts. The empty text is 0.
func Intern(text string) uint32 { return texts.intern(text) }

// Text returns the text of a number that Intern returned, and "" for any other.
func Text(id uint32) string { return texts.text(id) }

func (t *textTable) intern(text string) uint32 {
	if text == "" {
		return 0
	}
	if id, known := t.numbers.Load(text); known {
		return id.(uint32)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, known := t.numbers.Load(text); known {
		return id.(uint32)
	}
	list := *t.list.Load()
	if len(list) >= t.maxCount || t.bytes+len(text) > t.maxBytes {
		return t.other
	}
	t.bytes += len(text)
	id := uint32(len(list))
	text = strings.Clone(text) // it may be a small part of a big one, or lie in memory of C
	list = append(list, text)
	t.list.Store(&list) // before the number can be known to anybody
	t.numbers.Store(text, id)
	return id
}

func (t *textTable) text(id uint32) string {
	list := *t.list.Load()
	if int(id) >= len(list) {
		return ""
	}
	return list[id]
}
