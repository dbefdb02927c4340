package engine

import (
	"fmt"

	"github.com/tack-memory/tack-memory/backends/cpu"
	"github.com/tack-memory/tack-memory/gomem"
)

// cpuKind counts arrays in host memory. They are where spilling would put them, so they never move.
var cpuKind = &kind{
	name:    "cpu",
	single:  true,
	count:   func() (int, error) { return 1, nil },
	library: func() Library { return Library{} },
	facts: func(int) (Facts, error) {
		total, _ := gomem.HostMemory()
		facts := cpu.ReadFacts()
		return Facts{Product: facts.Product, Total: total, Notes: pageNotes(facts)}, nil
	},
	open: func(name string, _ int) (gomem.Driver, bool, error) { return cpu.Open(name), false, nil },
}

// pageNotes says for people of what pages the host's memory is made: huge ones are much faster to write first and to give back.
func pageNotes(facts cpu.Facts) []string {
	pages := "pages of " + pageSize(facts.PageBytes)
	if facts.KernelPageBytes != 0 && facts.KernelPageBytes != facts.PageBytes {
		pages += fmt.Sprintf(" (the kernel's own have %s)", pageSize(facts.KernelPageBytes))
	}
	notes := []string{pages}
	if facts.TransparentHugePages != "" {
		transparent := "transparent huge pages: "
		if facts.TransparentPageBytes > 0 {
			transparent += pageSize(facts.TransparentPageBytes) + ", "
		}
		transparent += inWords(whichMemory, facts.TransparentHugePages)
		if facts.Defrag != "" && facts.TransparentHugePages != "never" {
			transparent += "; where none is free, " + inWords(whenNoneIsFree, facts.Defrag)
		}
		notes = append(notes, transparent)
	}
	for _, pool := range facts.HugePages {
		notes = append(notes, fmt.Sprintf("%d huge pages of %s set aside, %d free", pool.Count, pageSize(pool.PageBytes), pool.Free))
	}
	return notes
}

// What the kernel's words for its handling of transparent huge pages mean (its documentation, admin-guide/mm/transhuge.rst).
var (
	whichMemory = map[string]string{"always": "for all memory", "madvise": "only where a program asks", "never": "off"}

	whenNoneIsFree = map[string]string{
		"always":        "the program waits for one to be made",
		"defer":         "they are made in the background",
		"defer+madvise": "a program that asked waits for one to be made, and others get one later",
		"madvise":       "only a program that asked waits for one to be made",
		"never":         "none is made",
	}
)

// inWords explains one of the kernel's words, and keeps it for who looks for it.
func inWords(meanings map[string]string, word string) string {
	if meaning := meanings[word]; meaning != "" {
		return fmt.Sprintf("%s (%s)", meaning, word)
	}
	return word
}

// pageSize writes a size of pages, which is a power of two.
func pageSize[N ~int | ~int64 | ~uint64](bytes N) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	unit := 0
	for bytes >= 1024 && bytes%1024 == 0 && unit < len(units)-1 {
		bytes /= 1024
		unit++
	}
	return fmt.Sprintf("%d %s", bytes, units[unit])
}
