#!/bin/sh
# Kernel tests against a build with address and undefined behaviour sanitizers (GCC, Linux).
# ISAS chooses instruction sets, "avx2;neon" for instance; all of them take minutes to compile.
# Arguments go to pytest. cmake and ninja must be found, as in .venv/bin.
set -eu
cd "$(dirname "$0")/../../.."
build=build/kernels-sanitized
cmake -G Ninja -S engine/kernels -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DREPRISE_SANITIZE=ON -DREPRISE_WERROR=ON -DREPRISE_ISAS="${ISAS:-portable;avx2;avx512;neon}"
cmake --build "$build"
# Python itself leaks on purpose; only errors of the library count.
LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 \
  REPRISE_KERNELS="$PWD/$build/libreprise_kernels.so" \
  "${PYTHON:-python}" -m pytest -q -m "not slow" tests/engine/kernels "$@"
