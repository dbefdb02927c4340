package layout

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
)

// C and Go each have their own declaration of the memory they share; field by field the two must agree.
func TestCAndGoLayOutSharedMemoryAlike(t *testing.T) {
	for name, shared := range map[string]reflect.Type{
		"Record": reflect.TypeFor[gomem.Record](),
		"Books":  reflect.TypeFor[gomem.Books](),
		"Scope":  reflect.TypeFor[gomem.Scope](),

		"Told":     reflect.TypeFor[gomem.Told](),
		"ToldSlot": reflect.TypeFor[gomem.ToldSlot](),
		"ToldRing": reflect.TypeFor[gomem.ToldRing](),
	} {
		t.Run(name, func(t *testing.T) {
			inC := Structs()[name]
			require.Equal(t, inC.Size, shared.Size(), "size")
			require.Equal(t, len(inC.Fields), shared.NumField(), "number of fields")
			for i, field := range inC.Fields {
				inGo := shared.Field(i)
				require.Equal(t, field, Field{inGo.Name, inGo.Offset, inGo.Type.Size()})
			}
		})
	}
}

func TestCAndGoNumberEventsAlike(t *testing.T) {
	require.Equal(t, gomem.ToldNumbers(), Numbers())
}

func TestCAndGoNumberStatesAlike(t *testing.T) {
	want := []uint32{uint32(gomem.Free), uint32(gomem.Building), uint32(gomem.Resident), uint32(gomem.Spilling), uint32(gomem.Spilled), uint32(gomem.Restoring)}
	require.Equal(t, want, States())
	require.EqualValues(t, gomem.Dropped, Dropped)
	state, dropped := gomem.StateOf(StateMask)
	require.EqualValues(t, StateMask, state, "C's mask keeps what Go's keeps")
	require.False(t, dropped, "C's mask leaves Dropped out")
}
