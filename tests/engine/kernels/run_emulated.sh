#!/bin/sh
# Kernel tests on NEON without an ARM machine: cross-compiled, run by QEMU in an arm64 Python.
# Installs nothing; says what is missing. Arguments go to pytest, -k test_linear for instance.
# ARM_ROOT: a folder with an arm64 system. cmake and ninja must be found, as in .venv/bin.
set -eu
cd "$(dirname "$0")/../../.."

explain() {
  cat >&2 <<'END'
Needed, from Debian 12: g++-aarch64-linux-gnu, qemu-user. And ARM_ROOT, the absolute path of a
folder with an arm64 Python, which is never installed, only unpacked (about 800 MB):
  dpkg --add-architecture arm64 && apt-get update
  mkdir -p "$ARM_ROOT" && cd "$ARM_ROOT"
  for name in libc6 libgcc-s1 libstdc++6 libgomp1 zlib1g libbz2-1.0 liblzma5 libexpat1 libffi8 \
      libssl3 libpython3.11-minimal libpython3.11-stdlib python3.11-minimal; do
    apt-get download "$name:arm64" && dpkg -x "$(echo "$name"_*.deb)" .
  done
  pip install --target site --python-version 3.11 --only-binary :all: --no-deps \
    --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 \
    torch==2.8.0 filelock typing_extensions sympy mpmath networkx fsspec jinja2 markupsafe numpy \
    gguf tqdm pyyaml requests tokenizers huggingface_hub psutil \
    pytest pluggy iniconfig packaging pygments hypothesis sortedcontainers attrs
(PyTorch of later versions has no wheel for arm64 that goes without CUDA's libraries.)
END
  exit 1
}

python="${ARM_ROOT:-}/usr/bin/python3.11"
[ -x "$python" ] && [ -d "$ARM_ROOT/site/torch" ] || explain
command -v aarch64-linux-gnu-g++ qemu-aarch64 >/dev/null || explain
build=build/kernels-emulated
cmake -G Ninja -S engine/kernels -B "$build" -DCMAKE_BUILD_TYPE=Release -DREPRISE_WERROR=ON \
  -DREPRISE_ISAS=neon -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
cmake --build "$build"
OMP_NUM_THREADS=1 PYTHONPATH="$PWD:$ARM_ROOT/site" \
  REPRISE_KERNELS="$PWD/$build/libreprise_kernels.so" \
  qemu-aarch64 -cpu neoverse-n1 -L "$ARM_ROOT" "$python" \
  -m pytest -q -W default -p no:cacheprovider -m "not slow" tests/engine/kernels "$@"
