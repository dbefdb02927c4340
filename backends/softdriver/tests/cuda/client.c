#include "client.h"

struct api cu;

void load(void)
{
	open_library();
#define F(name, base, version, parameters) cu.name = (CUresult(*) parameters)symbol(#name);
#include "../../cuda/functions.def"
#undef F
}

void start(void)
{
	CUcontext context;
	if (!library)
		load();
	OK(cu.cuInit(0));
	OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
	OK(cu.cuCtxSetCurrent(context));
}

CUstream new_stream(unsigned flags)
{
	CUstream stream;
	OK(cu.cuStreamCreate(&stream, flags));
	return stream;
}

void close_gate(struct gate *gate, CUstream stream)
{
	make_gate(gate);
	OK(cu.cuLaunchHostFunc(stream, stand_at_gate, gate));
}
