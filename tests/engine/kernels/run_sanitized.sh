#!/bin/sh
# Kernel tests against a build with address and undefined behaviour sanitizers (GCC, Linux).
set -eu
cd "$(dirname "$0")/../../.."
build=build/kernels-sanitize
cmake -S engine/kernels -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DREPRISE_SANITIZE=ON -DREPRISE_WERROR=ON
cmake --build "$build"
# Python itself leaks on purpose; only errors of the library count.
LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0 REPRISE_KERNELS="$PWD/$build/libreprise_kernels.so" \
  "${PYTHON:-python}" -m pytest -q tests/engine/kernels/test_linear.py tests/engine/kernels/test_attend.py \
  tests/engine/kernels/test_float_linear.py tests/engine/kernels/test_recurrent.py \
  tests/engine/kernels/test_row_norm.py tests/engine/kernels/test_top_k.py \
  tests/engine/kernels/test_planes.py "$@"
