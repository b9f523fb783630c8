#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "costmodel/argument_list.h"
#include "costmodel/model_spec.h"

namespace hydraulis {

/// What a name of a model begins with that is read from Megatron-LM's arguments: "megatron:FILE".
inline constexpr const char* kMegatronPrefix = "megatron:";

/// The arguments of a Megatron-LM run, from a file (parse_argument_list). Whoever reads one takes
/// it off the list of those that were not used. All throw InputError with the file and the
/// argument.
class MegatronArguments {
 public:
  MegatronArguments(const std::vector<Argument>& arguments, std::string where);

  bool has(const std::string& name);
  /// A switch without a value: whether it is there.
  bool on(const std::string& name);
  std::optional<std::string> text(const std::string& name);
  std::optional<int> integer(const std::string& name, int low, int high);
  int required(const std::string& name, int low, int high);
  /// Refuses an argument that asks for something that is not simulated here; `allowed` values of
  /// it ask for nothing.
  void refuse(const std::string& name, const std::string& why,
              const std::vector<std::string>& allowed = {});
  [[noreturn]] void contradict(const std::string& name, const std::string& why) const;

  /// Neither read by anybody nor known to change nothing that is simulated, in order.
  std::vector<std::string> unknown() const;
  const std::string& where() const { return where_; }

 private:
  struct Found {
    std::vector<std::string> values;
    int line = 0;
  };
  const Found* find(const std::string& name);
  std::string place(const std::string& name) const;

  std::string where_;
  std::map<std::string, Found> arguments_;
  std::vector<std::string> order_;
  std::set<std::string> used_;
};

/// Reads the file. Throws InputError when it cannot be read or has no argument, and when it gives
/// one twice with different values.
MegatronArguments read_megatron_arguments(const std::filesystem::path& path);

/// The model that the arguments describe; what it takes differently from them is said in `notes`.
/// The vocabulary is padded as Megatron-LM pads it. Refused by name: experts, latent attention,
/// multi-token prediction, encoders, state-space layers.
ModelSpec megatron_model(MegatronArguments& arguments, std::vector<std::string>& notes);

}  // namespace hydraulis
