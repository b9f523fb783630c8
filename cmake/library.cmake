# hydraulis_library(NAME dependency...): one static library from every .cpp below the current folder,
# known as hydraulis::NAME; a folder of headers only becomes an interface library. Headers are
# included from the project root ("planner/strategy.h"). A folder below with a CMakeLists.txt is a
# library of its own.
function(hydraulis_library name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  file(GLOB inner ${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt)
  foreach(list_file ${inner})
    cmake_path(GET list_file PARENT_PATH folder)
    list(FILTER sources EXCLUDE REGEX "^${folder}/")
    list(FILTER headers EXCLUDE REGEX "^${folder}/")
  endforeach()
  if(sources)
    set(visibility PUBLIC)
    add_library(hydraulis_${name} STATIC ${sources})
  else()
    set(visibility INTERFACE)
    add_library(hydraulis_${name} INTERFACE)
  endif()
  add_library(hydraulis::${name} ALIAS hydraulis_${name})
  # Target all_verify_interface_header_sets compiles each header alone.
  target_sources(hydraulis_${name} ${visibility} FILE_SET HEADERS
    BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers})
  target_include_directories(hydraulis_${name} ${visibility} ${PROJECT_SOURCE_DIR})
  target_link_libraries(hydraulis_${name} ${visibility} ${ARGN})
endfunction()
