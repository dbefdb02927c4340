package metal

// method is a place in the table of methods.
type method int

const (
	// Every object
	methodRetain method = iota
	methodRelease
	methodRespondsToSelector

	// NSString, NSArray, NSError
	methodUTF8String
	methodCount
	methodObjectAtIndex
	methodCode

	// MTLDevice
	methodName
	methodRegistryID
	methodRecommendedMaxWorkingSetSize
	methodCurrentAllocatedSize
	methodMaxBufferLength
	methodHasUnifiedMemory
	methodNewBuffer

	// MTLBuffer
	methodContents

	// MTLCommandQueue
	methodDevice
	methodCommandBuffer

	// MTLCommandBuffer
	methodCommit
	methodWaitUntilCompleted
	methodStatus
	methodError

	methodsTotal
)

// methods names them. One that some macOS with Metal (10.11 on) lacks has a version and says what is not known without it.
var methods = [methodsTotal]struct {
	name    string
	since   string // version of macOS; "": every one with Metal
	feature string
}{
	methodRetain:                       {name: "retain"},
	methodRelease:                      {name: "release"},
	methodRespondsToSelector:           {name: "respondsToSelector:"},
	methodUTF8String:                   {name: "UTF8String"},
	methodCount:                        {name: "count"},
	methodObjectAtIndex:                {name: "objectAtIndex:"},
	methodCode:                         {name: "code"},
	methodName:                         {name: "name"},
	methodRegistryID:                   {"registryID", "10.13", "telling two devices of one model apart"},
	methodRecommendedMaxWorkingSetSize: {"recommendedMaxWorkingSetSize", "10.12", "how much memory the device may use in all"},
	methodCurrentAllocatedSize:         {"currentAllocatedSize", "10.13", "how much memory this process has on the device"},
	methodMaxBufferLength:              {"maxBufferLength", "10.14", "how long one buffer may be"},
	methodHasUnifiedMemory:             {"hasUnifiedMemory", "10.15", "whether the device's memory is the host's"},
	methodNewBuffer:                    {name: "newBufferWithLength:options:"},
	methodContents:                     {name: "contents"},
	methodDevice:                       {name: "device"},
	methodCommandBuffer:                {name: "commandBuffer"},
	methodCommit:                       {name: "commit"},
	methodWaitUntilCompleted:           {name: "waitUntilCompleted"},
	methodStatus:                       {name: "status"},
	methodError:                        {name: "error"},
}
