# Agreement with NVIDIA's headers of two toolkits; included by ../Makefile. The headers are NVIDIA's and stay out of the repository: they come from
# NVIDIA's own wheels on PyPI, unless CU12=dir and CU13=dir say where they are.
CU12 ?= $(FETCHED)/12/nvidia/cuda_runtime/include
CU13 ?= $(FETCHED)/13/nvidia/cu13/include

$(eval $(call fetch_wheel,12,nvidia/cuda_runtime/include,cuda.h,nvidia-cuda-runtime-cu12==12.9.79))
$(eval $(call fetch_wheel,13,nvidia/cu13/include,cuda.h,nvidia-cuda-runtime==13.5.37))

VENDOR_HEADERS_cuda := $(CU12)/cuda.h $(CU13)/cuda.h
check-cuda: $(VENDOR_HEADERS_cuda) $(OUT)/libtack_memory_simcuda.so
	$(CHECK) $(HERE)cuda/check/layout.c
	set -e; for headers in $(CU12) $(CU13); do \
	  for file in abi versions; do $(CHECK) -isystem $$headers $(HERE)cuda/check/$$file.c; done; \
	  for file in $(wildcard $(HERE)cuda/*.c); do $(CHECK) -DSOFT_VENDOR_HEADER -isystem $$headers $$file; done; \
	  echo "agrees with $$headers"; done
	@# and the check can fail: one wrong parameter type in the table must be found
	sed 's/F(cuMemAlloc_v2,cuMemAlloc,3020,(CUdeviceptr \*, size_t))/F(cuMemAlloc_v2,cuMemAlloc,3020,(CUdeviceptr *, unsigned int))/' $(HERE)cuda/functions.def > $(BUILD)/wrong.def
	! cmp -s $(BUILD)/wrong.def $(HERE)cuda/functions.def
	! $(CHECK) -DFUNCTIONS='"$(abspath $(BUILD)/wrong.def)"' -isystem $(CU13) $(HERE)cuda/check/abi.c 2> $(BUILD)/wrong.log
	grep -q 'signature of cuMemAlloc_v2' $(BUILD)/wrong.log
	$(PYTHON) $(HERE)cuda/check/gaps.py --check $(CU12)/cudaTypedefs.h $(CU13)/cudaTypedefs.h
	$(PYTHON) $(HERE)cuda/check/exports.py $(OUT)/libtack_memory_simcuda.so $(CU12)/cuda.h $(CU13)/cuda.h
