package layout

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCheckout is the rule itself: no file of this checkout breaks it.
func TestCheckout(t *testing.T) {
	root := os.DirFS("../..")
	problems, files, err := Check(root)
	require.NoError(t, err)
	for _, problem := range problems {
		t.Error(problem)
	}
	assert.Greater(t, files, 50, "files read: is ../.. still the top of the tree?")
	for _, folder := range []string{"gomem", "backends/dl", "backends/cuda", "backends/metal", "backends/softdriver", "bindings/fast", "python/tack_memory", "examples/minihost"} {
		entries, err := os.ReadDir("../../" + folder)
		require.NoError(t, err, "a folder that the rules name is gone: change the rules with it")
		assert.NotEmpty(t, entries)
	}
}

// TestRules breaks each rule once, and keeps it once where the rule is easily drawn too wide.
func TestRules(t *testing.T) {
	const gomem, backends, bindings = Module + "/gomem", Module + "/backends/cuda", Module + "/bindings"
	for _, c := range []struct {
		name, file, text string
		want             []string
	}{
		{"core imports cgo", "gomem/a.go", "package gomem\n\nimport \"C\"\n",
			[]string{`gomem/a.go:3: imports "C": the core is pure Go: what needs C belongs in backends or bindings`}},
		{"core imports a backend", "gomem/internal/x/a.go", "package x\n\nimport (\n\t\"fmt\"\n\t_ \"" + backends + "\"\n)\n",
			[]string{`gomem/internal/x/a.go:5: imports "` + backends + `": the core knows no vendor: a backend implements gomem.Driver, and bindings put the two together`}},
		{"a core's test imports a backend", "gomem/a_test.go", "package gomem_test\n\nimport b \"" + backends + "\"\n",
			[]string{`gomem/a_test.go:3: imports "` + backends + `": the core knows no vendor: a backend implements gomem.Driver, and bindings put the two together`}},
		{"core imports bindings", "gomem/a.go", "package gomem\n\nimport \"" + bindings + "/fast\"\n",
			[]string{`gomem/a.go:3: imports "` + bindings + `/fast": the core knows no Python: bindings import gomem, never the other way round`}},
		{"core imports x/sys and itself", "gomem/a.go", "package gomem\n\nimport (\n\t\"golang.org/x/sys/unix\"\n\t\"" + gomem + "/internal/x\"\n)\n", nil},
		{"core imports a dependency", "gomem/a.go", "package gomem\n\nimport \"github.com/stretchr/testify/assert\"\n",
			[]string{`gomem/a.go:3: imports "github.com/stretchr/testify/assert": what users run depends on Go's library and golang.org/x/sys only`}},
		{"a test imports a dependency", "gomem/a_test.go", "package gomem\n\nimport \"github.com/stretchr/testify/assert\"\n", nil},
		{"Metal calls without cgo", "backends/metal/a_darwin.go", "package metal\n\nimport \"github.com/ebitengine/purego\"\n", nil},
		{"Metal does so elsewhere", "backends/metal/a.go", "package metal\n\nimport \"github.com/ebitengine/purego\"\n",
			[]string{`backends/metal/a.go:3: imports "github.com/ebitengine/purego": only files for macOS of backends/dl and backends/metal need it: everything else has cgo`}},
		{"another backend calls without cgo", "backends/cuda/a_darwin.go", "package cuda\n\nimport \"github.com/ebitengine/purego/objc\"\n",
			[]string{`backends/cuda/a_darwin.go:3: imports "github.com/ebitengine/purego/objc": only files for macOS of backends/dl and backends/metal need it: everything else has cgo`}},
		{"dlopen without cgo", "backends/metal/a_darwin.go", "package metal\n\nimport \"github.com/ebitengine/purego\"\n\nvar h, _ = purego.Dlopen(\"x\", 1)\n",
			[]string{`backends/metal/a_darwin.go:5: "purego.Dlopen(": only backends/dl loads libraries and looks up their functions`}},
		{"a folder whose name begins alike", "gomemory/a.go", "package a\n\nimport \"C\"\n", nil},

		{"backend imports bindings", "backends/cuda/a.go", "package cuda\n\nimport \"" + bindings + "/internal/engine\"\n",
			[]string{`backends/cuda/a.go:3: imports "` + bindings + `/internal/engine": backends know no Python: they import gomem only, and bindings import them`}},
		{"backend imports the core", "backends/cuda/a.go", "package cuda\n\nimport \"C\"\nimport \"" + gomem + "\"\n", nil},
		{"bindings import all", "bindings/a.go", "package bindings\n\nimport (\n\t\"" + gomem + "\"\n\t\"" + backends + "\"\n)\n", nil},

		{"dlopen in a preamble", "backends/cuda/a.go", "package cuda\n\n/*\n#include <dlfcn.h>\nstatic void *f(void) { // text\n\treturn dlopen(\"x\", 1);\n}\n*/\nimport \"C\"\n",
			[]string{`backends/cuda/a.go:6: "dlopen(": only backends/dl loads libraries and looks up their functions`}},
		{"dlsym in a line preamble", "bindings/a.go", "package bindings\n\n// void *f(void *h) { return dlsym (h, 0); }\nimport \"C\"\n",
			[]string{`bindings/a.go:3: "dlsym (": only backends/dl loads libraries and looks up their functions`}},
		{"dlopen called through cgo", "backends/cuda/a.go", "package cuda\n\nimport \"C\"\n\nvar h = C.dlopen(nil, 1)\n",
			[]string{`backends/cuda/a.go:5: "dlopen(": only backends/dl loads libraries and looks up their functions`}},
		{"dlopen in C", "bindings/fast/a.c", "/* not dlopen( */\nchar *s = \"/* \"; void f(void) { dlopen(s, 1); }\n",
			[]string{`bindings/fast/a.c:2: "dlopen(": only backends/dl loads libraries and looks up their functions`}},
		{"dlopen in comments", "backends/cuda/a.go", "package cuda\n\n// dlopen(3) is in dl\nvar _ = 1 /* dlopen(x) */\n", nil},
		{"dlopen where it belongs", "backends/dl/a.go", "package dl\n\n// void *f(void) { return dlopen(0, 1); }\nimport \"C\"\n", nil},

		{"Python.h outside bindings", "backends/cuda/a.h", "#include <Python.h>\n",
			[]string{`backends/cuda/a.h:1: "#include <Python.h>": only bindings know Python`}},
		{"an extension module outside bindings", "backends/cuda/a.c", "\n\nvoid *PyInit__fast(void) { return 0; }\n",
			[]string{`backends/cuda/a.c:3: "PyInit__fast": extension modules (the fast lane, the control plane) are in bindings only`}},
		{"Go exported to C outside bindings", "backends/cuda/a.go", "package cuda\n\nimport \"C\"\n\n//export tm_go\nfunc tm_go() {}\n",
			[]string{`backends/cuda/a.go:5: only bindings export Go functions to C`}},
		{"all of it in bindings", "bindings/fast/a.go", "package fast\n\n// #include <Python.h>\nimport \"C\"\n\n//export tm_go\nfunc tm_go() {}\n", nil},

		{"ctypes in the package", "python/tack_memory/a.py", "import sys\nimport ctypes.util\n",
			[]string{`python/tack_memory/a.py:2: "import ctypes": the package reaches native code through tack_memory._native only`}},
		{"NumPy's attribute of that name", "python/tack_memory/a.py", "p = a.ctypes.data\n", nil},
		{"the host knows us", "examples/minihost/a.py", "def f():\n    from tack_memory import memory_info\n",
			[]string{`examples/minihost/a.py:2: "from tack_memory": a host framework (examples/minihost) knows nothing of tack_memory, which plugs itself in`}},
		{"the demo knows us", "examples/sweep.py", "import tack_memory\n", nil},
		{"generated files", "build/gopy/tm.c", "void *PyInit__tm(void);\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems, _, err := Check(fstest.MapFS{c.file: &fstest.MapFile{Data: []byte(c.text)}})
			require.NoError(t, err)
			var got []string
			for _, problem := range problems {
				got = append(got, problem.String())
			}
			assert.Equal(t, c.want, got)
		})
	}
}
