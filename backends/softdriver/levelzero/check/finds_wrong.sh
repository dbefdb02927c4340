# The test of the check: with one wrong line in a table it must fail, and name the line.
# From the environment: HERE and BUILD as in the Makefile, CHECK (the compiler's command), HEADERS (the folder of the vendor's).
set -eu

# finds MACRO TABLE RIGHT WRONG MESSAGE: abi.c with RIGHT replaced by WRONG in the table must fail with MESSAGE.
finds() {
    sed "s/$3/$4/" "${HERE}levelzero/$2" >"$BUILD/wrong-levelzero.def"
    if cmp -s "$BUILD/wrong-levelzero.def" "${HERE}levelzero/$2"; then
        echo "finds_wrong.sh: $2 has no '$3' any more" >&2
        exit 1
    fi
    if $CHECK "-D$1=\"$BUILD/wrong-levelzero.def\"" -isystem "$HEADERS" "${HERE}levelzero/check/abi.c" 2>"$BUILD/wrong-levelzero.log"; then
        echo "finds_wrong.sh: the check takes '$4' in $2 for right" >&2
        exit 1
    fi
    grep -q "$5" "$BUILD/wrong-levelzero.log"
}

finds FUNCTIONS functions.def 'ze_device_mem_alloc_desc_t \*, size_t, size_t' 'ze_device_mem_alloc_desc_t *, size_t, unsigned int' 'signature of zeMemAllocDevice'
finds FUNCTIONS functions.def '(zes_mem_handle_t, zes_mem_state_t \*)' '(zes_mem_handle_t, zes_mem_properties_t *)' 'signature of zesMemoryGetState'
finds VALUES values.def 'TYPE_MEMORY_FREE_EXT_DESC,0x1000a' 'TYPE_MEMORY_FREE_EXT_DESC,0x10009' 'value of ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC'
finds VALUES values.def 'S(1_0,zes_mem_state_t,40)' 'S(1_0,zes_mem_state_t,32)' 'size of zes_mem_state_t'
finds VALUES values.def 'ze_device_properties_t,maxMemAllocSize,40' 'ze_device_properties_t,maxMemAllocSize,36' 'offset of ze_device_properties_t.maxMemAllocSize'
