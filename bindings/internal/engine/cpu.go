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
		notes := []string{"counted, never spilled: its memory is the host's", fmt.Sprintf("pages of %d bytes", facts.PageBytes)}
		if facts.TransparentHugePages != "" {
			notes = append(notes, "transparent huge pages: "+facts.TransparentHugePages)
		}
		if facts.HugePages > 0 {
			notes = append(notes, fmt.Sprintf("%d huge pages of %d bytes set aside, %d free", facts.HugePages, facts.HugePageBytes, facts.HugePagesFree))
		}
		return Facts{Product: facts.Product, Total: total, Notes: notes}, nil
	},
	open: func(name string, _ int) (gomem.Driver, bool, error) { return cpu.Open(name), false, nil },
}
