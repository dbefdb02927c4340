// Package common is what backends share whatever their vendor: errors, and operations that a library offers only in part and that are
// composed of those it has. It knows no library.
package common
