# hydraulis_library(NAME dependency...): one static library from every .cpp below the current folder,
# known as hydraulis::NAME. Headers are included from the project root ("planner/strategy.h").
function(hydraulis_library name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(hydraulis_${name} STATIC ${sources})
  add_library(hydraulis::${name} ALIAS hydraulis_${name})
  target_include_directories(hydraulis_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(hydraulis_${name} PUBLIC ${ARGN})
endfunction()
