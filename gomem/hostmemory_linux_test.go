package gomem

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHostMemoryOfThisProcess(t *testing.T) {
	total, available := HostMemory()
	assert.Positive(t, total)
	assert.Positive(t, available)
	assert.LessOrEqual(t, available, total)
}

func TestTotalIsTheTightestLimit(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"proc/meminfo":         "MemTotal: 1000 kB\nMemAvailable: 900 kB\n",
		"group/memory.max":     "max\n",
		"group/memory.high":    "600000\n",
		"group/sub/memory.max": "500000\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
	}
	h := hostMemory{root: root}
	total, known := h.total()
	assert.True(t, known)
	assert.EqualValues(t, 1000<<10, total)

	for _, directory := range []string{"group", "group/sub"} {
		group := groupV2.files()
		group.directory = directory
		h.groups = append(h.groups, group)
	}
	total, known = h.total()
	assert.True(t, known)
	assert.EqualValues(t, 500000, total)

	_, known = (&hostMemory{root: t.TempDir()}).total()
	assert.False(t, known)
}
