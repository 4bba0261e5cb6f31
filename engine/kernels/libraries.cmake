# One shared library; the kernels are compiled once per instruction set and chosen at load.
option(REPRISE_SANITIZE "Address and undefined behaviour sanitizers" OFF)
option(REPRISE_WERROR "Warnings are errors" OFF)
set(REPRISE_ISAS portable avx2 avx512 neon CACHE STRING
  "The instruction sets to compile, of those that the processor's family has")

find_package(Threads REQUIRED)

add_library(reprise_kernels MODULE
  src/api.cpp
  src/context.cpp
  src/crc32.cpp
  src/dispatch.cpp
  src/gguf_blocks.cpp
  src/gguf_rare_blocks.cpp
  src/pack.cpp
  src/pack_parts.cpp
  src/plan.cpp
  src/pool.cpp
  src/top_k.cpp)
target_link_libraries(reprise_kernels PRIVATE Threads::Threads)

function(reprise_target_options target)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  if(MSVC)
    target_compile_options(${target} PRIVATE /W4 /EHsc)
    return()
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra -O2 -fno-math-errno)
  if(REPRISE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(REPRISE_SANITIZE)
    # Without use-after-scope: with it the inlined kernels take a quarter of an hour to compile.
    target_compile_options(${target} PRIVATE -O1 -g1 -fno-omit-frame-pointer
      -fsanitize=address,bounds,shift,signed-integer-overflow,float-cast-overflow,null
      -fno-sanitize-recover=undefined)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -fno-sanitize-address-use-after-scope)
    endif()
  endif()
endfunction()

# reprise_add_isa(NAME flags...): src/isa_unit.cpp in its own namespace, with its own flags.
function(reprise_add_isa name)
  if(NOT name IN_LIST REPRISE_ISAS)
    return()
  endif()
  string(TOUPPER ${name} upper)
  add_library(reprise_${name} OBJECT src/isa_unit.cpp)
  reprise_target_options(reprise_${name})
  target_compile_options(reprise_${name} PRIVATE ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Both move sums away from their products, and then registers do not suffice.
    target_compile_options(reprise_${name} PRIVATE -fno-tree-reassoc -fno-tree-ter)
  endif()
  target_compile_definitions(reprise_${name} PRIVATE
    RP_ISA_${upper} RP_NS=rp_${name} RP_NAME="${name}")
  target_sources(reprise_kernels PRIVATE $<TARGET_OBJECTS:reprise_${name}>)
  target_compile_definitions(reprise_kernels PRIVATE RP_HAS_${upper})
endfunction()

reprise_target_options(reprise_kernels)
if(REPRISE_SANITIZE AND NOT MSVC)
  target_link_options(reprise_kernels PRIVATE -fsanitize=address,undefined)
endif()

# What has no better path is not made to compile for minutes.
reprise_add_isa(portable $<IF:$<CXX_COMPILER_ID:MSVC>,/O1,-O1>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  if(MSVC)
    reprise_add_isa(avx2 /arch:AVX2)
    reprise_add_isa(avx512 /arch:AVX512)
  else()
    reprise_add_isa(avx2 -mavx2 -mfma -mf16c)
    # GCC 12 calls the undefined operands inside its own intrinsics uninitialized (PR 105593).
    reprise_add_isa(avx512 -Wno-uninitialized -Wno-maybe-uninitialized
      -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c)
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64" AND NOT MSVC)
  reprise_add_isa(neon -march=armv8.2-a+dotprod+fp16)
endif()

reprise_install_kernel(reprise_kernels)
