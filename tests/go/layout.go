// Package layout holds the house rules of the source tree, as functions that list what breaks them. Its tests run them over the
// checkout and, to see that they can fail, over small trees that break each rule.
//
// Dependencies point downwards: python -> bindings -> gomem <- backends. The core knows neither Python nor a vendor.
package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Module is the path that this module's imports begin with.
const Module = "github.com/tack-memory/tack-memory"

// Problem is one line that breaks a rule.
type Problem struct {
	File string
	Line int
	What string // which rule, and why it is one
}

func (p Problem) String() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.What) }

// importRule forbids imports in all Go files below a folder, tests included.
type importRule struct {
	below   string   // folder of the importing file
	targets []string // "C", or a folder of this module with all that is below it
	why     string
}

var importRules = []importRule{
	{"gomem", []string{"C"}, "the core is pure Go: what needs C belongs in backends or bindings"},
	{"gomem", []string{"backends"}, "the core knows no vendor: a backend implements gomem.Driver, and bindings put the two together"},
	{"gomem", []string{"bindings"}, "the core knows no Python: bindings import gomem, never the other way round"},
	{"backends", []string{"bindings"}, "backends know no Python: they import gomem only, and bindings import them"},
}

// outside lists the modules that code which users run may import; what tests import is not limited.
var outside = []string{"golang.org/x/sys"}

// onMacOS is one more, for macOS alone: it calls C functions without cgo, so that Metal's backend can be built on any machine.
const onMacOS = "github.com/ebitengine/purego"

// mayCallWithoutCgo are the folders whose files for macOS may import it.
var mayCallWithoutCgo = []string{"backends/dl", "backends/metal"}

// mention forbids a text in source files of some kinds outside the folders that own it. Comments in Go and C do not count.
type mention struct {
	pattern *regexp.Regexp
	kinds   []string // file name endings
	owners  []string // folders and files
	why     string
}

var mentions = []mention{
	{regexp.MustCompile(`\b(?:dl(?:open|mopen|sym|vsym)|purego\.Dl(?:open|sym))\s*\(`), []string{".go", ".c", ".h"}, []string{"backends/dl", "backends/softdriver/tests", "tests", "bench"},
		"only backends/dl loads libraries and looks up their functions"},
	{regexp.MustCompile(`#\s*include\s*[<"]Python\.h[>"]`), []string{".go", ".c", ".h"}, []string{"bindings", "bench", "tests/py"}, // bench compiles what it measures against, tests what users would write
		"only bindings know Python"},
	{regexp.MustCompile(`\bPyInit_\w+`), []string{".go", ".c", ".h"}, []string{"bindings", "bench", "tests/py"},
		"extension modules (the fast lane, the control plane) are in bindings only"},
	{regexp.MustCompile(`(?m)^\s*(?:import|from)\s+(?:ctypes|cffi)\b`), []string{".py"}, []string{"tests", "bench", "buildsystem", "examples", "backends/softdriver/levelzero/check"},
		"the package reaches native code through tack_memory._native only"},
	{regexp.MustCompile(`(?m)^\s*(?:import|from)\s+tack_memory\b`), []string{".py"}, []string{"python", "tests", "bench", "docs", "examples/numpy_tracking.py", "examples/plugged_in.py", "examples/sweep.py", "examples/sweep", "examples/dask_sweep.py", "examples/mpi_sweep.py"},
		"a host framework (examples/minihost) knows nothing of tack_memory, which plugs itself in"},
}

// goExport is a comment to Go, so it is looked for in the whole text.
var goExport = regexp.MustCompile(`(?m)^//export \w+`)

// Check lists every line below root that breaks a rule, and the number of source files that it read.
func Check(root fs.FS) (problems []Problem, files int, err error) {
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if hidden := strings.HasPrefix(entry.Name(), ".") && name != "."; hidden || entry.Name() == "build" || name == "dist" || name == "tests/go" {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".c", ".h", ".py"}, path.Ext(name)) || generated(name) {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		files++
		found, err := checkFile(name, string(text))
		problems = append(problems, found...)
		return err
	})
	return problems, files, err
}

// generated tells gopy's Python files, which the build puts beside the package's own.
func generated(name string) bool {
	return name == "python/tack_memory/_native/go.py" || name == "python/tack_memory/_native/bindings.py"
}

func checkFile(name, text string) ([]Problem, error) {
	var problems []Problem
	code := text
	switch path.Ext(name) {
	case ".go":
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		problems = checkImports(name, set, file)
		if at := goExport.FindStringIndex(text); at != nil && !below(name, "bindings") {
			problems = append(problems, Problem{name, line(text, at[0]), "only bindings export Go functions to C"})
		}
		code = withoutComments(openPreamble(text, set, file))
	case ".c", ".h":
		code = withoutComments(text)
	}
	for _, m := range mentions {
		if !slices.Contains(m.kinds, path.Ext(name)) || slices.ContainsFunc(m.owners, func(owner string) bool { return below(name, owner) }) {
			continue
		}
		for _, at := range m.pattern.FindAllStringIndex(code, -1) {
			found := strings.TrimSpace(code[at[0]:at[1]])
			problems = append(problems, Problem{name, line(code, at[1]), fmt.Sprintf("%q: %s", found, m.why)})
		}
	}
	return problems, nil
}

func checkImports(name string, set *token.FileSet, file *ast.File) []Problem {
	var problems []Problem
	for _, spec := range file.Imports {
		imported := strings.Trim(spec.Path.Value, "\"`")
		bad := func(why string) {
			problems = append(problems, Problem{name, set.Position(spec.Pos()).Line, fmt.Sprintf("imports %q: %s", imported, why)})
		}
		for _, rule := range importRules {
			if below(name, rule.below) && slices.ContainsFunc(rule.targets, func(t string) bool { return imported == t || below(imported, Module+"/"+t) }) {
				bad(rule.why)
			}
		}
		shipped := below(name, "gomem") || below(name, "backends") || below(name, "bindings")
		domain, _, _ := strings.Cut(imported, "/")
		if !shipped || strings.HasSuffix(name, "_test.go") || !strings.Contains(domain, ".") || below(imported, Module) ||
			slices.ContainsFunc(outside, func(m string) bool { return below(imported, m) }) {
			continue
		}
		if !below(imported, onMacOS) {
			bad("what users run depends on Go's library and golang.org/x/sys only")
		} else if !strings.HasSuffix(name, "_darwin.go") || !slices.ContainsFunc(mayCallWithoutCgo, func(f string) bool { return below(name, f) }) {
			bad("only files for macOS of backends/dl and backends/metal need it: everything else has cgo")
		}
	}
	return problems
}

// openPreamble turns cgo's preamble, a comment to Go but code to the C compiler, into plain text. Every line stays where it is.
func openPreamble(text string, set *token.FileSet, file *ast.File) string {
	for _, declaration := range file.Decls {
		imports, ok := declaration.(*ast.GenDecl)
		if !ok || imports.Doc == nil || imports.Specs[0].(*ast.ImportSpec).Path.Value != `"C"` {
			continue
		}
		for _, comment := range imports.Doc.List {
			start, end := set.Position(comment.Pos()).Offset, set.Position(comment.End()).Offset
			inside := "  " + text[start+2:end]
			if strings.HasPrefix(comment.Text, "/*") {
				inside = "  " + text[start+2:end-2] + "  "
			}
			text = text[:start] + inside + text[end:]
		}
	}
	return text
}

// literalOrComment finds comments, and the literals in which what looks like one is none.
var literalOrComment = regexp.MustCompile("(?s)`[^`]*`" + `|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/`)

// withoutComments blanks the comments of Go or C, and keeps every line where it is.
func withoutComments(text string) string {
	return literalOrComment.ReplaceAllStringFunc(text, func(found string) string {
		if !strings.HasPrefix(found, "/") {
			return found
		}
		return strings.Repeat("\n", strings.Count(found, "\n"))
	})
}

// below says whether name is the file or folder, or lies in it.
func below(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

func line(text string, at int) int { return 1 + strings.Count(text[:at], "\n") }
