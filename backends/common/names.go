package common

import (
	"fmt"
	"strings"
)

// NameBeside is the name of another device of the same kind: "cuda:1" beside "cuda:0".
func NameBeside(name string, ordinal int) string {
	kind, _, _ := strings.Cut(name, ":")
	return fmt.Sprintf("%s:%d", kind, ordinal)
}
