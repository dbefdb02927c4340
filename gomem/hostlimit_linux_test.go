package gomem

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// hostWith makes a hostMemory over files as the kernel shows them.
func hostWith(t *testing.T, files map[string]string) *hostMemory {
	t.Helper()
	h := &hostMemory{root: t.TempDir()}
	for name, text := range files {
		full := filepath.Join(h.root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(text), 0o644))
	}
	h.findGroups()
	return h
}

func TestAvailableMemory(t *testing.T) {
	const meminfo = "MemTotal:       24683652 kB\nMemFree:          100 kB\nMemAvailable:       1000 kB\n"
	const v2mount = "29 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	const v1mounts = "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 master:1 - cgroup cgroup rw,memory\n"
	const noLimitV1 = "9223372036854771712\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
		known bool
	}{
		{"nothing can be read", nil, 0, false},
		{"no control groups", map[string]string{"proc/meminfo": meminfo}, 1000 << 10, true},
		{"version 2, no limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v2mount, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.high": "max\n", "sys/fs/cgroup/a/b/memory.current": "5\n",
		}, 1000 << 10, true},
		{"version 2, own limit, cache counts as left", map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v2mount, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "500000\n", "sys/fs/cgroup/a/b/memory.high": "max\n", "sys/fs/cgroup/a/b/memory.current": "400000\n",
			"sys/fs/cgroup/a/b/memory.stat": "anon 300000\nfile 100000\ninactive_file 90000\n",
		}, 190_000, true},
		{"version 2, the parent's limit is lower", map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v2mount, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "500000\n", "sys/fs/cgroup/a/b/memory.current": "100000\n",
			"sys/fs/cgroup/a/memory.max": "450000\n", "sys/fs/cgroup/a/memory.current": "430000\n",
		}, 20_000, true},
		{"version 2, memory.high throttles", map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v2mount, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "500000\n", "sys/fs/cgroup/a/memory.high": "200000\n", "sys/fs/cgroup/a/memory.current": "150000\n",
		}, 50_000, true},
		{"version 2, over the limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v2mount, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "100\n", "sys/fs/cgroup/a/memory.current": "150\n",
		}, 0, true},
		{"version 2, a namespace that shows paths outside of it", map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v2mount, "proc/self/cgroup": "0::/../../x\n",
			"sys/fs/cgroup/memory.max": "300000\n", "sys/fs/cgroup/memory.current": "0\n",
		}, 300_000, true},
		{"version 1, nested; the page cache of children counts", map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v1mounts, "proc/self/cgroup": "5:cpuset:/\n4:cpu,memory:/job/7\n0::/\n",
			"sys/fs/cgroup/memory/job/7/memory.limit_in_bytes": noLimitV1, "sys/fs/cgroup/memory/job/7/memory.usage_in_bytes": "7\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "600000\n", "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "200000\n",
			"sys/fs/cgroup/memory/job/memory.stat":       "inactive_file 1\ntotal_inactive_file 50000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": noLimitV1,
		}, 450_000, true},
		{"version 1, a container that sees its own part of the tree", map[string]string{
			"proc/meminfo":        meminfo,
			"proc/self/mountinfo": "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"proc/self/cgroup":    "4:memory:/docker/abc/inner\n",
			"sys/fs/cgroup/memory/inner/memory.limit_in_bytes": "70000\n", "sys/fs/cgroup/memory/inner/memory.usage_in_bytes": "20000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "60000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "20000\n",
		}, 40_000, true},
		{"a mount point with a space, a group that is not there", map[string]string{
			"proc/meminfo":             meminfo,
			"proc/self/mountinfo":      `29 1 0:26 / /sys/my\040groups rw - cgroup2 none rw` + "\n",
			"proc/self/cgroup":         "0::/gone\n",
			"sys/my groups/memory.max": "1234\n", "sys/my groups/memory.current": "34\n",
		}, 1200, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, known := hostWith(t, c.files).available()
			require.Equal(t, c.known, known)
			require.Equal(t, c.want, got)
		})
	}
}

func TestAvailableMemoryOfThisHost(t *testing.T) {
	got, known := availableMemory()()
	require.True(t, known, "a kernel this old does not run Go programs")
	require.Positive(t, got)
}
