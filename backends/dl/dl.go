// Package dl opens a vendor's shared library and looks its functions up by name. It is the only place that knows dlopen.
//
// Nothing is linked against a vendor's library: a program that uses this package starts on a machine without any driver, and what is
// missing is an error that says what was tried. Which functions a backend wants is data (a table of Symbol), so that a missing one
// disables what needs it instead of failing the load. The loader itself is an interface, so that all of this is tested without a driver.
package dl

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Symbol is one function of a vendor's library that a backend wants.
type Symbol struct {
	Name     string
	Since    int    // version of the vendor's API that introduced it, in the vendor's own numbering (CUDA: 11020 for 11.2)
	Required bool   // without it the library cannot be used at all
	Feature  string // for an optional one: what does not work without it
}

// API is what a backend wants of its vendor's library.
type API struct {
	Name        string                   // "HIP", in texts
	Symbols     []Symbol                 // the functions
	VersionText func(version int) string // writes Since for people; nil: in plain digits
}

// Candidate is one place where a library may be.
type Candidate struct {
	Name       string // a path, or a bare file name that the dynamic linker looks for
	OnlyLoaded bool   // take it only if the process has it loaded already: that copy is shared with whoever loaded it
}

// Handle is an open library as its Loader knows it. The zero Handle is none.
type Handle uintptr

// Loader is what a dynamic linker does. System is the real one.
type Loader interface {
	// Open opens a library. Its error's text is the linker's own.
	Open(candidate Candidate) (Handle, error)
	// Lookup returns a function's address, or 0 where the library has none of that name.
	Lookup(library Handle, symbol string) uintptr
	// File names the file that the code at address was loaded from; "" where that is not known.
	File(address uintptr) string
	// Close undoes one Open.
	Close(library Handle) error
}

// Library is an open library with its functions looked up.
type Library struct {
	loader    Loader
	handle    Handle
	candidate Candidate
	file      string
	symbols   []Symbol
	addresses []uintptr // parallel to symbols; 0: the library does not have it
}

// Open opens the first candidate that can be opened and has every required symbol. The error is a *LoadError.
func Open(loader Loader, candidates []Candidate, wanted API) (*Library, error) {
	failed := &LoadError{}
	for _, candidate := range candidates {
		handle, err := loader.Open(candidate)
		if err != nil {
			failed.Attempts = append(failed.Attempts, Attempt{candidate, err})
			continue
		}
		library := &Library{loader: loader, handle: handle, candidate: candidate, symbols: wanted.Symbols}
		if err := library.resolve(wanted); err != nil {
			failed.Attempts = append(failed.Attempts, Attempt{candidate, errors.Join(err, loader.Close(handle))})
			continue
		}
		return library, nil
	}
	return nil, failed
}

// resolve looks every symbol up; a *MissingError when a required one is not there.
func (l *Library) resolve(wanted API) error {
	l.addresses = make([]uintptr, len(l.symbols))
	var missing []Symbol
	for i, symbol := range l.symbols {
		l.addresses[i] = l.loader.Lookup(l.handle, symbol.Name)
		switch {
		case l.addresses[i] == 0 && symbol.Required:
			missing = append(missing, symbol)
		case l.addresses[i] != 0 && l.file == "":
			l.file = l.loader.File(l.addresses[i])
		}
	}
	if missing != nil {
		return &MissingError{API: wanted, Symbols: missing}
	}
	return nil
}

// Path is the file that was loaded where the linker tells, else the name it was opened by.
func (l *Library) Path() string {
	if l.file != "" {
		return l.file
	}
	return l.candidate.Name
}

// Shared says that the process had the library loaded before.
func (l *Library) Shared() bool { return l.candidate.OnlyLoaded }

// Address is the address of Symbols[i] of the API; 0 where the library does not have it. Valid until Close.
func (l *Library) Address(i int) uintptr { return l.addresses[i] }

// Lookup returns the address of a function that is not in the table, or 0. Valid until Close.
func (l *Library) Lookup(name string) uintptr { return l.loader.Lookup(l.handle, name) }

// Missing lists the optional symbols that the library does not have.
func (l *Library) Missing() []Symbol {
	var missing []Symbol
	for i, symbol := range l.symbols {
		if l.addresses[i] == 0 {
			missing = append(missing, symbol)
		}
	}
	return missing
}

// Close closes the library. No function of it may run, now or later: most drivers must stay open until the process ends.
func (l *Library) Close() error { return l.loader.Close(l.handle) }

// Attempt is a candidate that could not be used.
type Attempt struct {
	Candidate Candidate
	Err       error
}

// LoadError says that no candidate could be used, and why each could not.
type LoadError struct{ Attempts []Attempt }

// notThere is the dynamic linker's text for a file that does not exist, or is in none of its folders.
const notThere = "cannot open shared object file: No such file or directory"

func (e *LoadError) Error() string {
	if len(e.Attempts) == 0 {
		return "no library to load: no place to look was given"
	}
	var tried, absent []string
	for i, attempt := range e.Attempts {
		name, why := attempt.Candidate.Name, attempt.Err.Error()
		if attempt.Candidate.OnlyLoaded && slices.ContainsFunc(e.Attempts[i+1:], func(a Attempt) bool { return a.Candidate.Name == name }) {
			continue // it was looked for on disk, too, and the answer to that says more
		}
		if why == name+": "+notThere {
			absent = append(absent, name)
			continue
		}
		if !strings.HasPrefix(why, name+": ") { // the linker begins its texts so
			why = name + ": " + why
		}
		tried = append(tried, why)
	}
	switch len(absent) {
	case 0:
	case 1:
		tried = append(tried, absent[0]+": it is not there")
	default:
		tried = append(tried, strings.Join(absent, ", ")+": none of them is there")
	}
	return "no usable library; tried " + strings.Join(tried, "; ")
}

// Unwrap gives errors.As the reasons.
func (e *LoadError) Unwrap() []error {
	reasons := make([]error, len(e.Attempts))
	for i, attempt := range e.Attempts {
		reasons[i] = attempt.Err
	}
	return reasons
}

// MissingError says that a library was found but lacks functions without which it cannot be used: it is too old, or where it has none
// of them, it is another library.
type MissingError struct {
	API     API
	Symbols []Symbol // the required ones that are missing
}

// mostNames is how many missing functions a text names; a list of all would hide what it says.
const mostNames = 5

func (e *MissingError) Error() string {
	first := e.Symbols[0].Name
	if !slices.ContainsFunc(e.API.Symbols, func(s Symbol) bool { return s.Required && !slices.Contains(e.Symbols, s) }) {
		return fmt.Sprintf("it is no %s library: it has neither %s nor any other function that is needed", e.API.Name, first)
	}
	var names []string
	newest := 0
	for _, symbol := range e.Symbols {
		names = append(names, symbol.Name)
		newest = max(newest, symbol.Since)
	}
	if more := len(names) - mostNames; more > 0 {
		names = append(names[:mostNames], fmt.Sprintf("and %d more functions", more))
	}
	version := strconv.Itoa(newest)
	if e.API.VersionText != nil {
		version = e.API.VersionText(newest)
	}
	return fmt.Sprintf("it lacks %s; %s %s or newer is needed", strings.Join(names, ", "), e.API.Name, version)
}
