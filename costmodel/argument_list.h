#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hydraulis {

/// One option of a command line: "--seq-length 4096".
struct Argument {
  std::string name;                 ///< without dashes in front, '_' as '-': "seq-length"
  std::vector<std::string> values;  ///< what stands behind it, up to the next option
  int line = 0;
};

/// Options in a file: a plain list, one command of a shell script over several lines, or variables
/// of such a script that hold options ("GPT_ARGS=( … )", "GPT_ARGS=\"…\""). Comments, quotes,
/// continued lines and variables that the file sets to one word ("NODES=4", "${NODES}",
/// "${NODES:-4}") are understood; nothing is executed, and what cannot be known stands as written
/// ("$RANK", "$((2*N))").
std::vector<Argument> parse_argument_list(std::string_view text);

}  // namespace hydraulis
