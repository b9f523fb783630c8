# Compile options shared by every target.
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror)
# GCC 12 sees overlapping copies in std::string operations where there are none (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options(-Wno-restrict)
endif()
# Generators promise the same numbers on every machine, so no fused multiply-add behind our back.
add_compile_options(-ffp-contract=off)
if(HYDRAULIS_SANITIZE)
  add_compile_options(-fsanitize=${HYDRAULIS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HYDRAULIS_SANITIZE})
  # With sanitizers GCC 12 warns falsely of uninitialised members inside std::regex; builds without
  # sanitizers keep this warning.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
endif()

# Rebuilds are common and the machines small: use the compiler cache where it is installed, in a way
# that another clone of the project shares.
find_program(HYDRAULIS_CCACHE ccache)
if(HYDRAULIS_CCACHE)
  set(HYDRAULIS_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
                         CCACHE_NOHASHDIR=1 ${HYDRAULIS_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HYDRAULIS_LAUNCHER})
  set(CMAKE_C_COMPILER_LAUNCHER ${HYDRAULIS_LAUNCHER})
endif()

# The CUDA backend is built where its compiler stands (AUTO) or always (ON). Sanitizers do not see
# into it: there its emulated form is what counts.
set(HYDRAULIS_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set(HYDRAULIS_WITH_CUDA ${HYDRAULIS_CUDA})
if(HYDRAULIS_CUDA STREQUAL "AUTO")
  set(HYDRAULIS_WITH_CUDA OFF)
  if(NOT HYDRAULIS_SANITIZE)
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      set(HYDRAULIS_WITH_CUDA ON)
    endif()
  endif()
endif()
