# The test of the check: with one wrong line in a table it must fail, and name the line.
# From the environment: HERE and BUILD as in the Makefile, CHECK (the compiler's command), HEADERS (the folder of AMD's).
set -eu

# finds MACRO TABLE RIGHT WRONG MESSAGE: abi.c with RIGHT replaced by WRONG in the table must fail with MESSAGE.
finds() {
    sed "s/$3/$4/" "${HERE}hip/$2" >"$BUILD/wrong-hip.def"
    if cmp -s "$BUILD/wrong-hip.def" "${HERE}hip/$2"; then
        echo "finds_wrong.sh: $2 has no '$3' any more" >&2
        exit 1
    fi
    if $CHECK "-D$1=\"$BUILD/wrong-hip.def\"" -isystem "$HEADERS" "${HERE}hip/check/abi.c" 2>"$BUILD/wrong-hip.log"; then
        echo "finds_wrong.sh: the check takes '$4' in $2 for right" >&2
        exit 1
    fi
    grep -q "$5" "$BUILD/wrong-hip.log"
}

finds FUNCTIONS functions.def '(hipMallocAsync,5,hipError_t,(void \*\*, size_t,' '(hipMallocAsync,5,hipError_t,(void **, unsigned int,' 'signature of hipMallocAsync'
finds FUNCTIONS functions.def '(hipGetErrorName,5,const char \*,' '(hipGetErrorName,5,hipError_t,' 'signature of hipGetErrorName'
finds VALUES values.def '(hipDeviceAttributeMemoryPoolsSupported,88)' '(hipDeviceAttributeMemoryPoolsSupported,115)' 'value of hipDeviceAttributeMemoryPoolsSupported'
finds VALUES values.def 'S(hipMemPoolProps,88)' 'S(hipMemPoolProps,80)' 'size of hipMemPoolProps'
finds VALUES values.def 'O(hipMemPoolProps,location,8)' 'O(hipMemPoolProps,location,4)' 'offset of hipMemPoolProps.location'
