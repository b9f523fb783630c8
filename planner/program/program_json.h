#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "planner/program/program.h"

namespace hydraulis {

/// JSON form of a program; fields that have their default value are left out. The schema is in
/// docs/formats.md, "Program".
Json program_to_json(const Program& program);

/// Reads the form above. Every index is checked to be in range, so that the program is safe to walk
/// (whether it makes sense is for verify()). Throws InputError naming `where` and the field.
Program program_from_json(const Json& json, const std::string& where);

void write_program(const Program& program, const std::filesystem::path& path);
Program read_program(const std::filesystem::path& path);

}  // namespace hydraulis
