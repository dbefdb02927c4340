package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tack-memory/tack-memory/backends/cpu"
)

func TestPageNotes(t *testing.T) {
	assert.Equal(t, []string{"pages of 4 KiB"}, pageNotes(cpu.Facts{PageBytes: 4096}), "what is not known is not mentioned")
	assert.Equal(t, []string{"pages of 4 KiB"}, pageNotes(cpu.Facts{PageBytes: 4096, KernelPageBytes: 4096}))
	assert.Equal(t, []string{"pages of 4 KiB (the kernel's own have 16 KiB)"}, pageNotes(cpu.Facts{PageBytes: 4096, KernelPageBytes: 16384}))
	assert.Equal(t, []string{
		"pages of 4 KiB",
		"transparent huge pages: 2 MiB, only where a program asks (madvise); where none is free, they are made in the background (defer)",
		"12 huge pages of 2 MiB set aside, 7 free",
		"2 huge pages of 1 GiB set aside, 0 free",
	}, pageNotes(cpu.Facts{PageBytes: 4096, TransparentHugePages: "madvise", TransparentPageBytes: 2 << 20, Defrag: "defer",
		HugePages: []cpu.HugePages{{PageBytes: 2 << 20, Count: 12, Free: 7}, {PageBytes: 1 << 30, Count: 2}}}))
	assert.Equal(t, []string{"pages of 64 KiB", "transparent huge pages: off (never)"},
		pageNotes(cpu.Facts{PageBytes: 64 << 10, TransparentHugePages: "never", Defrag: "madvise"}))
	assert.Equal(t, "transparent huge pages: sometimes", pageNotes(cpu.Facts{TransparentHugePages: "sometimes"})[1], "a word of later kernels")
}
