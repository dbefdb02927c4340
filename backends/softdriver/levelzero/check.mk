# Agreement with the vendor's headers; included by ../Makefile. ZE=dir says where they are (a folder with level_zero/ze_api.h); otherwise it is Debian's
# libze-dev 1.8.12, specification 1.4. No package registry that we know has newer ones: what came later (the rows of functions.def and values.def that say
# 1_5 and higher) is compared only when ZE_NEWEST=dir names headers of specification 1.16 or later, as github.com/oneapi-src/level-zero publishes them, with
# one exception: Intel's own Sysman bindings for Python (PyPI's pyzes, of specification 1.16) declare and call zesInit, zesDriverGet, zesDeviceGet and
# zesDriverGetDeviceByUuidExp, and are run here over the software driver.
# So compared with nothing, where ZE_NEWEST is not given: zeInitDrivers and ze_init_driver_type_desc_t; zeCommandListHostSynchronize,
# zeCommandListIsImmediate, zeCommandListGetContextHandle, zeCommandListGetDeviceHandle; the flags IN_ORDER, COPY_OFFLOAD_HINT, EXP_CLONEABLE,
# KERNEL_MAPPED_TIMESTAMP and MEM_READ_ONLY; ZE_RESULT_ERROR_ADDRESS_NOT_FOUND; ze_device_usablemem_size_ext_properties_t,
# ze_external_memmap_sysmem_ext_desc_t and the stype of the relaxed limits' second description; and, in no header at all, extensions.def.
ZE ?= $(FETCHED)/ze/usr/include
ZE_NEWEST ?=
PYZES := $(FETCHED)/pyzes/pyzes/__init__.py

$(eval $(call fetch_deb,ze,usr/include/level_zero/ze_api.h,libze-dev,ZE))
$(eval $(call fetch_wheel,pyzes,pyzes,__init__.py,pyzes==0.1.3))

VENDOR_HEADERS_levelzero := $(ZE)/level_zero/ze_api.h $(PYZES)
check-levelzero: $(VENDOR_HEADERS_levelzero) $(OUT)/libtack_memory_simlevelzero.so
	$(CHECK) $(HERE)levelzero/check/layout.c
	$(CHECK) -isystem $(ZE) $(HERE)levelzero/check/abi.c
	$(if $(ZE_NEWEST),$(CHECK) -DNEWEST -isystem $(ZE_NEWEST) $(HERE)levelzero/check/abi.c)
	set -e; for headers in $(ZE) $(ZE_NEWEST); do \
	  for file in $(wildcard $(HERE)levelzero/*.c); do $(CHECK) -DSOFT_VENDOR_HEADER -isystem $$headers $$file; done; \
	  echo "agrees with $$headers"; done
	$(PYTHON) $(HERE)levelzero/check/pyzes_client.py $(PYZES) $(OUT)/libtack_memory_simlevelzero.so
	@# and the checks can fail: one wrong parameter type, one wrong number, one wrong offset in the tables must be found
	HERE=$(HERE) BUILD=$(BUILD) CHECK='$(CHECK)' HEADERS=$(ZE) sh $(HERE)levelzero/check/finds_wrong.sh
