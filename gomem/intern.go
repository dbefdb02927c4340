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

// interned is a text by its number.
type interned struct {
	text string
	line uint32 // of a stack: the number of its innermost line; of all else its own
}

type textTable struct {
	maxCount, maxBytes int

	numbers sync.Map                   // string -> uint32
	stacks  sync.Map                   // the same for stacks: a label may have the text of one
	list    atomic.Pointer[[]interned] // by number; only ever longer, old elements are never written again

	mu    sync.Mutex // guards adding: bytes, and the storing of list and numbers
	bytes int
	other uint32
}

func newTextTable(maxCount, maxBytes int) *textTable {
	t := &textTable{maxCount: maxCount, maxBytes: maxBytes, other: 1}
	list := []interned{{"", 0}, {textOther, t.other}}
	t.list.Store(&list)
	t.numbers.Store("", uint32(0))
	t.numbers.Store(textOther, t.other)
	return t
}

// Intern returns the number of a text, the same one for equal texts. The empty text is 0.
func Intern(text string) uint32 { return texts.intern(text) }

// InternStack returns the number of a stack of frames ("file.py:12 function", the innermost first, one a line), the same one for equal stacks. line is the
// number of its innermost line ("file.py:12"), which is what the stack's number stands for wherever one line is shown. A stack may be some kilobytes long, so stacks
// take half of the table at most: after that their lines stand for new ones, and labels and lines still have room.
func InternStack(stack string, line uint32) uint32 { return texts.internStack(stack, line) }

// Text returns the text of a number that Intern returned, and "" for any other.
func Text(id uint32) string { return texts.entry(id).text }

// OriginLine returns the number of the line that an origin stands for: an origin is a line's number, or a stack's.
func OriginLine(id uint32) uint32 { return texts.entry(id).line }

// OriginText is the text of the line that an origin stands for, "file.py:12"; "" for none.
func OriginText(id uint32) string { return Text(OriginLine(id)) }

// OriginStack returns the frames of an origin that is a stack, the innermost first; nil for one that is a line.
func OriginStack(id uint32) []string {
	if e := texts.entry(id); e.line != id {
		return strings.Split(e.text, "\n")
	}
	return nil
}

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
	text = strings.Clone(text) // it may be a small part of a big one, or lie in memory of C
	id := uint32(len(list))
	t.addLocked(interned{text, id})
	t.numbers.Store(text, id)
	return id
}

func (t *textTable) internStack(stack string, line uint32) uint32 {
	if id, known := t.stacks.Load(stack); known {
		return id.(uint32)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, known := t.stacks.Load(stack); known {
		return id.(uint32)
	}
	list := *t.list.Load()
	if len(list) >= t.maxCount/2 || t.bytes+len(stack) > t.maxBytes/2 {
		return line
	}
	stack = strings.Clone(stack)
	id := uint32(len(list))
	t.addLocked(interned{stack, line})
	t.stacks.Store(stack, id)
	return id
}

// addLocked gives a text the next number; nobody may know that number before.
func (t *textTable) addLocked(e interned) {
	t.bytes += len(e.text)
	list := append(*t.list.Load(), e)
	t.list.Store(&list)
}

func (t *textTable) entry(id uint32) interned {
	list := *t.list.Load()
	if int(id) >= len(list) {
		return interned{"", id}
	}
	return list[id]
}

func (t *textTable) text(id uint32) string { return t.entry(id).text }
