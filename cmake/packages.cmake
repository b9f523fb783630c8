# Every package the project builds on; tests/run.sh installs them on Debian.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(Eigen3 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)

add_library(hydraulis_hdf5 INTERFACE)
add_library(hydraulis::hdf5 ALIAS hydraulis_hdf5)
target_include_directories(hydraulis_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(hydraulis_hdf5 INTERFACE ${HDF5_C_LIBRARIES})
# Chart.js: what `hydraulis report` draws with becomes part of the command.
find_file(HYDRAULIS_CHART_LIBRARY chart.min.js PATHS /usr/share/javascript/chart.js
  PATH_SUFFIXES javascript/chart.js REQUIRED)

if(HYDRAULIS_TESTS)
  find_package(GTest REQUIRED)
  pkg_check_modules(CBC REQUIRED IMPORTED_TARGET cbc)
endif()
if(HYDRAULIS_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
