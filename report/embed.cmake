# cmake -DOUTPUT=page_assets.cpp -DTEMPLATE=… -DSTYLE=… -DSCRIPT=… -DCHART=… -P embed.cmake
# Writes the files of the HTML page as C++ constants.
function(constant name file)
  file(READ "${file}" text)
  string(APPEND code "const std::string_view ${name} = R\"page(${text})page\";\n")
  set(code "${code}" PARENT_SCOPE)
endfunction()

set(code "#include \"report/page_assets.h\"\n\nnamespace hydraulis::detail {\n\n")
constant(kPageTemplate "${TEMPLATE}")
constant(kPageStyle "${STYLE}")
constant(kPageScript "${SCRIPT}")
constant(kChartLibrary "${CHART}")
string(APPEND code "\n}  // namespace hydraulis::detail\n")
file(WRITE "${OUTPUT}" "${code}")
