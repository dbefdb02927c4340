# Agreement with AMD's headers of three generations; included by ../Makefile. HIP5=dir, HIP6=dir and HIP7=dir may say where they are; otherwise:
#   HIP 5.2  Debian's libamdhip64-dev (a later Debian has a later HIP 5)
#   HIP 6.2  in the wheel triton 3.3.1 of PyPI, 156 MB, below triton/backends/amd/include; MIT, as HIP itself
#   HIP 7.1  in the wheel triton 3.9.0 of PyPI, 286 MB, at the same place. (triton 3.1.0 has HIP 6.1, in 210 MB)
# They differ in what concerns us: hipMemPoolProps got maxSize in 6; hipPointerAttribute_t names its first member `type`, not `memoryType`, from 6 on, and
# the numbers of hipMemoryType moved up by one; hipStreamGetDevice came with 6; hipMemcpyHtoD and hipMemcpyHtoDAsync got a const source in 7, so the table
# has neither; hipGetDeviceProperties is a macro for another symbol from 6 on.
HIP_IN_WHEEL := triton/backends/amd/include
TRITON_WHEEL := --platform manylinux_2_27_x86_64 --python-version 311 --implementation cp --abi cp311
HIP5 ?= $(FETCHED)/hip5/usr/include
HIP6 ?= $(FETCHED)/hip6/$(HIP_IN_WHEEL)
HIP7 ?= $(FETCHED)/hip7/$(HIP_IN_WHEEL)
HIP_HEADER := hip/hip_version.h

$(eval $(call fetch_deb,hip5,usr/include/$(HIP_HEADER),libamdhip64-dev,HIP5))
$(eval $(call fetch_wheel,hip6,$(HIP_IN_WHEEL),$(HIP_HEADER),triton==3.3.1,$(TRITON_WHEEL)))
$(eval $(call fetch_wheel,hip7,$(HIP_IN_WHEEL),$(HIP_HEADER),triton==3.9.0,$(TRITON_WHEEL)))

VENDOR_HEADERS_hip := $(HIP5:%=%/$(HIP_HEADER)) $(HIP6:%=%/$(HIP_HEADER)) $(HIP7:%=%/$(HIP_HEADER))
check-hip: $(VENDOR_HEADERS_hip)
	@mkdir -p $(BUILD)
	$(CHECK) $(HERE)hip/check/layout.c
	set -e; for headers in $(HIP5) $(HIP6) $(HIP7); do $(CHECK) -isystem $$headers $(HERE)hip/check/abi.c; echo "agrees with $$headers"; done
	@# the sources themselves, where the vendor's structures have the members that they use
	set -e; for headers in $(HIP6) $(HIP7); do for file in $(wildcard $(HERE)hip/*.c); do $(CHECK) -DSOFT_VENDOR_HEADER -isystem $$headers $$file; done; done
	@# and the check can fail
	set -e; for headers in $(HIP5) $(HIP6) $(HIP7); do HERE=$(HERE) BUILD=$(BUILD) CHECK='$(CHECK)' HEADERS=$$headers sh $(HERE)hip/check/finds_wrong.sh; done
