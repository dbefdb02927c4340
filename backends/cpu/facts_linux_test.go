package cpu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadFacts(t *testing.T) {
	root := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
	}
	nothing := Facts{PageBytes: os.Getpagesize(), KernelPageBytes: os.Getpagesize()}
	assert.Equal(t, nothing, readFacts(root), "a kernel that tells nothing")

	write("proc/device-tree/model", "A Board 4\x00")
	assert.Equal(t, "A Board 4", readFacts(root).Product)
	write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor 9\n\nprocessor\t: 1\nmodel name\t: Another\n")
	write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
	write("sys/kernel/mm/transparent_hugepage/defrag", "always defer [defer+madvise] madvise never\n")
	write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n")
	for name, counts := range map[string][2]string{"1048576kB": {"2", "1"}, "2048kB": {"12", "7"}, "64kB": {"0", "0"}, "odd": {"5", "5"}} {
		write("sys/kernel/mm/hugepages/hugepages-"+name+"/nr_hugepages", counts[0]+"\n")
		write("sys/kernel/mm/hugepages/hugepages-"+name+"/free_hugepages", counts[1]+"\n")
	}
	assert.Equal(t, Facts{
		Product: "A Processor 9", PageBytes: os.Getpagesize(), KernelPageBytes: os.Getpagesize(), TransparentHugePages: "madvise",
		Defrag: "defer+madvise", TransparentPageBytes: 2 << 20, HugePages: []HugePages{{2 << 20, 12, 7}, {1 << 30, 2, 1}},
	}, readFacts(root))
	assert.Positive(t, ReadFacts().PageBytes)
}
