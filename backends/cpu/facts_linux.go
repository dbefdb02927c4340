package cpu

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ReadFacts asks the system.
func ReadFacts() Facts { return readFacts("/") }

// readFacts reads the kernel's files below root.
func readFacts(root string) Facts {
	const transparent = "sys/kernel/mm/transparent_hugepage/"
	return Facts{
		Product:              cmp.Or(field(root, "proc/cpuinfo", "model name"), strings.TrimRight(text(root, "proc/device-tree/model"), "\x00\n")),
		PageBytes:            os.Getpagesize(),
		KernelPageBytes:      os.Getpagesize(), // the kernel tells each process its own (AT_PAGESZ)
		TransparentHugePages: chosen(text(root, transparent+"enabled")),
		Defrag:               chosen(text(root, transparent+"defrag")),
		TransparentPageBytes: number(text(root, transparent+"hpage_pmd_size")),
		HugePages:            readHugePages(filepath.Join(root, "sys/kernel/mm/hugepages")),
	}
}

// readHugePages reads the kernel's pools of huge pages, one folder "hugepages-2048kB" for each size; sizes of which none are set aside are
// left out. The smallest size comes first.
func readHugePages(folder string) (pools []HugePages) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil // a kernel without them
	}
	for _, entry := range entries {
		size, named := strings.CutPrefix(entry.Name(), "hugepages-")
		kib, inKiB := strings.CutSuffix(size, "kB")
		pool := HugePages{PageBytes: number(kib) << 10, Count: number(text(folder, entry.Name()+"/nr_hugepages")), Free: number(text(folder, entry.Name()+"/free_hugepages"))}
		if named && inKiB && pool.PageBytes > 0 && pool.Count > 0 {
			pools = append(pools, pool)
		}
	}
	slices.SortFunc(pools, func(a, b HugePages) int { return cmp.Compare(a.PageBytes, b.PageBytes) })
	return pools
}

func text(root, name string) string {
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return "" // a kernel without it, or not for us
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

// number is a text as a number; 0 where it is none.
func number(value string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
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
