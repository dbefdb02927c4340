package bindings

import (
	"encoding/json"
	"errors"

	"github.com/tack-memory/tack-memory/bindings/internal/wire"
)

// packed is an error on its way to Python (tack_memory's _errors.py, translate).
type packed struct {
	Kind   wire.Kind `json:"kind"`
	Text   string    `json:"msg"`
	Fields any       `json:"fields,omitempty"`
}

// failure packs an error for Python. gopy gives Python a RuntimeError with a text and nothing else.
func failure(err error) error {
	t := packed{Kind: wire.KindOf(err), Text: err.Error()}
	if t.Kind == wire.Memory {
		t.Fields = wire.Fields(err, nil)
	}
	text, jsonErr := json.Marshal(t)
	if jsonErr != nil { // cannot be: strings and numbers
		return errors.Join(err, jsonErr)
	}
	return errors.New("tm1:" + string(text))
}

// rescue turns a panic into an error: one that leaves an exported function would end the Python process.
func rescue(err *error) {
	if r := recover(); r != nil {
		*err = failure(wire.Panic(r))
	}
}

func toJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", failure(err)
	}
	return string(text), nil
}
