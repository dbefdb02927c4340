package cpu

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Facts are what a report says of the host's memory. A text is empty, and a number 0, where the system does not tell.
type Facts struct {
	Product              string // the processor's name
	PageBytes            int
	TransparentHugePages string // "always", "madvise" or "never": which mappings the kernel gives huge pages by itself
	HugePageBytes        int64  // size of the pages that were set aside
	HugePages            int64  // how many
	HugePagesFree        int64
}

// ReadFacts asks the system.
func ReadFacts() Facts { return readFacts("/") }

// readFacts reads the kernel's files below root.
func readFacts(root string) Facts {
	facts := Facts{PageBytes: os.Getpagesize(), Product: field(root, "proc/cpuinfo", "model name")}
	facts.TransparentHugePages = chosen(text(root, "sys/kernel/mm/transparent_hugepage/enabled"))
	facts.HugePageBytes = number(field(root, "proc/meminfo", "Hugepagesize")) << 10
	facts.HugePages = number(field(root, "proc/meminfo", "HugePages_Total"))
	facts.HugePagesFree = number(field(root, "proc/meminfo", "HugePages_Free"))
	return facts
}

func text(root, name string) string {
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return "" // another system, or a kernel without it
	}
	return string(content)
}

// field is the value of the first line "key : value".
func field(root, name, key string) string {
	for line := range strings.Lines(text(root, name)) {
		if found, value, colon := strings.Cut(line, ":"); colon && strings.TrimSpace(found) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// number is the first word as a number; 0 where it is none.
func number(value string) int64 {
	word, _, _ := strings.Cut(value, " ")
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// chosen is the word in brackets: "always [madvise] never".
func chosen(choices string) string {
	_, rest, _ := strings.Cut(choices, "[")
	word, _, closed := strings.Cut(rest, "]")
	if !closed {
		return ""
	}
	return word
}
