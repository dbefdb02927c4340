package wire

import (
	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/gomem"
)

// Notice is gomem.Notice.
type Notice struct {
	Seconds float64 `json:"seconds"` // since 1970
	Level   string  `json:"level"`   // of Python's module logging
	Text    string  `json:"text"`
}

// General keeps the notices that belong to no device.
var General gomem.Notices

// TakeNotices returns what nobody's call could be told of, and forgets it.
func TakeNotices() []Notice {
	gomem.ForgetNoticed()
	taken := General.Take()
	for _, device := range engine.Devices() {
		if device.Notices().Waiting() {
			taken = append(taken, device.Notices().Take()...)
		}
	}
	list := make([]Notice, len(taken))
	for i, n := range taken {
		list[i] = Notice{Seconds: float64(n.Time.UnixMicro()) / 1e6, Level: n.Level.String(), Text: n.Text}
	}
	return list
}
