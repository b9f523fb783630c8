#include "costmodel/profile_file.h"

#include <limits>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/hdf5.h"

namespace hydraulis::detail {
namespace {

constexpr const char* kFormat = "hydraulis-profile";
constexpr std::int64_t kVersion = 1;
constexpr std::uint64_t kMostRows = 4096;

template <typename T>
void write_column(Hdf5File& file, const std::string& dataset, const std::string& units,
                  const std::vector<T>& values) {
  file.write<T>(dataset, values);
  file.set_attribute(dataset, "units", units);
}

void write_model(Hdf5File& file, const ModelSpec& model) {
  file.create_group("/model");
  const auto put = [&](const char* name, std::int64_t value) {
    file.set_attribute("/model", name, value);
  };
  file.set_attribute("/model", "name", model.name);
  put("layers", model.layers);
  put("hidden", model.hidden);
  put("ffn_hidden", model.ffn_hidden);
  put("heads", model.heads);
  put("kv_heads", model.kv_heads);
  put("head_dim", model.head_dim);
  put("vocab", model.vocab);
  put("tied_embeddings", model.tied_embeddings ? 1 : 0);
  put("qkv_bias", model.qkv_bias ? 1 : 0);
  put("qk_norm", model.qk_norm ? 1 : 0);
}

ModelSpec read_model(const Hdf5File& file, const std::string& where) {
  const auto get = [&](const char* name) { return small_attribute(file, where, "/model", name); };
  ModelSpec model;
  model.name = file.text_attribute("/model", "name");
  model.layers = get("layers");
  model.hidden = get("hidden");
  model.ffn_hidden = get("ffn_hidden");
  model.heads = get("heads");
  model.kv_heads = get("kv_heads");
  model.head_dim = get("head_dim");
  model.vocab = get("vocab");
  model.tied_embeddings = get("tied_embeddings") != 0;
  model.qkv_bias = get("qkv_bias") != 0;
  model.qk_norm = get("qk_norm") != 0;
  return model;
}

void write_schemes(Hdf5File& file, const std::vector<SchemeCoefficients>& rows) {
  std::vector<std::int64_t> cp, tp, pp, recompute;
  std::vector<double> a, b, c;
  for (const SchemeCoefficients& row : rows) {
    cp.push_back(row.scheme.cp);
    tp.push_back(row.scheme.tp);
    pp.push_back(row.scheme.pp);
    recompute.push_back(static_cast<std::int64_t>(row.scheme.recompute));
    a.push_back(row.a);
    b.push_back(row.b);
    c.push_back(row.c);
  }
  file.create_group("/schemes");
  write_column(file, "/schemes/cp", "devices", cp);
  write_column(file, "/schemes/tp", "devices", tp);
  write_column(file, "/schemes/pp", "stages", pp);
  write_column(file, "/schemes/recompute", "0 none, 1 selective, 2 full", recompute);
  write_column(file, "/schemes/a", "seconds per token squared", a);
  write_column(file, "/schemes/b", "seconds per token", b);
  write_column(file, "/schemes/c", "seconds per micro-batch", c);
}

/// Columns of one table must be equally long, and tables are small.
template <typename T>
std::vector<T> read_column(const Hdf5File& file, const std::string& where,
                           const std::string& dataset, std::uint64_t rows) {
  const std::uint64_t size = file.size(dataset);
  if (size != rows || size > kMostRows) {
    throw InputError("{}: dataset {} has {} rows, expected {} (at most {})", where, dataset, size,
                     rows, kMostRows);
  }
  return file.read<T>(dataset);
}

int degree(const std::string& where, const char* column, std::int64_t value) {
  constexpr std::int64_t kMost = 1 << 20;
  if (value < 1 || value > kMost) {
    throw InputError("{}: dataset {} holds {}, expected 1 to {}", where, column, value, kMost);
  }
  return static_cast<int>(value);
}

std::vector<SchemeCoefficients> read_schemes(const Hdf5File& file, const std::string& where) {
  const std::uint64_t rows = file.size("/schemes/cp");
  const auto cp = read_column<std::int64_t>(file, where, "/schemes/cp", rows);
  const auto tp = read_column<std::int64_t>(file, where, "/schemes/tp", rows);
  const auto pp = read_column<std::int64_t>(file, where, "/schemes/pp", rows);
  const auto recompute = read_column<std::int64_t>(file, where, "/schemes/recompute", rows);
  const auto a = read_column<double>(file, where, "/schemes/a", rows);
  const auto b = read_column<double>(file, where, "/schemes/b", rows);
  const auto c = read_column<double>(file, where, "/schemes/c", rows);
  std::vector<SchemeCoefficients> result(cp.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (recompute[i] < 0 || recompute[i] > 2) {
      throw InputError("{}: dataset /schemes/recompute holds {}, expected 0, 1 or 2", where,
                       recompute[i]);
    }
    result[i].scheme.cp = degree(where, "/schemes/cp", cp[i]);
    result[i].scheme.tp = degree(where, "/schemes/tp", tp[i]);
    result[i].scheme.pp = degree(where, "/schemes/pp", pp[i]);
    result[i].scheme.recompute = static_cast<Recompute>(recompute[i]);
    result[i].a = a[i];
    result[i].b = b[i];
    result[i].c = c[i];
  }
  return result;
}

template <typename T>
void write_by_tp(Hdf5File& file, const std::string& tp_column, const std::string& value_column,
                 const std::string& units, const std::map<int, T>& values) {
  std::vector<std::int64_t> tp;
  std::vector<T> column;
  for (const auto& [key, value] : values) {
    tp.push_back(key);
    column.push_back(value);
  }
  write_column(file, tp_column, "devices", tp);
  write_column(file, value_column, units, column);
}

template <typename T>
std::map<int, T> read_by_tp(const Hdf5File& file, const std::string& where,
                            const std::string& tp_column, const std::string& value_column) {
  const std::uint64_t rows = file.size(tp_column);
  const auto tp = read_column<std::int64_t>(file, where, tp_column, rows);
  const auto values = read_column<T>(file, where, value_column, rows);
  std::map<int, T> result;
  for (std::size_t i = 0; i < tp.size(); ++i) {
    result[degree(where, tp_column.c_str(), tp[i])] = values[i];
  }
  return result;
}

}  // namespace

int small_attribute(const Hdf5File& file, const std::string& where, const std::string& object,
                    const char* name) {
  const std::int64_t value = file.integer_attribute(object, name);
  if (value < 0 || value > std::numeric_limits<int>::max()) {
    throw InputError("{}: attribute '{}' of {} is {}, expected 0 to {}", where, name, object, value,
                     std::numeric_limits<int>::max());
  }
  return static_cast<int>(value);
}

void write_profile_head(Hdf5File& file, const std::string& kind) {
  file.set_attribute("/", "format", std::string(kFormat));
  file.set_attribute("/", "version", kVersion);
  file.set_attribute("/", "kind", kind);
}

std::string read_profile_head(const Hdf5File& file, const std::string& where) {
  if (!file.has_attribute("/", "format") || file.text_attribute("/", "format") != kFormat) {
    throw InputError("{}: attribute 'format' of / is not '{}': not a profile", where, kFormat);
  }
  if (const auto version = file.integer_attribute("/", "version"); version != kVersion) {
    throw InputError("{}: attribute 'version' of / is {}, expected {}", where, version, kVersion);
  }
  if (!file.has_attribute("/", "kind")) return kStageKind;
  const std::string kind = file.text_attribute("/", "kind");
  if (kind != kStageKind && kind != kOperatorKind) {
    throw InputError("{}: attribute 'kind' of / is '{}', expected '{}' or '{}'", where, kind,
                     kStageKind, kOperatorKind);
  }
  return kind;
}

std::string profile_file_kind(const std::filesystem::path& path) {
  return read_profile_head(Hdf5File::open(path), path.string());
}

void write_profile_file(const Profile& profile, const std::filesystem::path& path) {
  AtomicFile target(path);
  Hdf5File file = Hdf5File::create(target.temporary(), path.string());
  const auto flag = [&](const char* name, bool value) {
    file.set_attribute("/", name, std::int64_t{value ? 1 : 0});
  };
  write_profile_head(file, kStageKind);
  file.set_attribute("/", "name", profile.name);
  file.set_attribute("/", "device", profile.device);
  file.set_attribute("/", "origin", profile.origin);
  flag("analytic", profile.analytic);
  flag("contains_tensor_parallel_communication", profile.contains_tensor_parallel_communication);
  flag("contains_pipeline_communication", profile.contains_pipeline_communication);
  write_model(file, profile.model);
  write_schemes(file, profile.schemes);
  file.create_group("/utilisation");
  write_by_tp(file, "/utilisation/tp", "/utilisation/min_tokens", "tokens per micro-batch",
              profile.min_tokens_by_tp);
  file.create_group("/memory");
  write_by_tp(file, "/memory/tp", "/memory/activation_bytes",
              "bytes per token, layer and hidden/tp", profile.memory.activation_bytes_by_tp);
  file.set_attribute("/memory", "state_bytes", profile.memory.state_bytes);
  file.set_attribute("/memory", "optimizer_share", profile.memory.optimizer_share);
  file.set_attribute("/memory", "constant_gap_bytes", profile.memory.constant_gap_bytes);
  file.set_attribute("/memory", "safety_bytes", profile.memory.safety_bytes);
  file.set_attribute("/memory", "device_bound_bytes", profile.memory.device_bound_bytes);
  file.write_texts("/limits", profile.limits);
  file.close();
  target.commit();
}

Profile read_profile_file(const std::filesystem::path& path) {
  const std::string where = path.string();
  const Hdf5File file = Hdf5File::open(path);
  if (read_profile_head(file, where) != kStageKind) {
    throw InputError("{}: is a profile of operators, expected one of whole stages", where);
  }
  const auto flag = [&](const char* name) { return file.integer_attribute("/", name) != 0; };
  Profile profile;
  profile.name = file.text_attribute("/", "name");
  profile.device = file.text_attribute("/", "device");
  profile.origin = file.text_attribute("/", "origin");
  profile.analytic = flag("analytic");
  profile.contains_tensor_parallel_communication = flag("contains_tensor_parallel_communication");
  profile.contains_pipeline_communication = flag("contains_pipeline_communication");
  profile.model = read_model(file, where);
  profile.schemes = read_schemes(file, where);
  profile.min_tokens_by_tp =
      read_by_tp<std::int64_t>(file, where, "/utilisation/tp", "/utilisation/min_tokens");
  profile.memory.activation_bytes_by_tp =
      read_by_tp<double>(file, where, "/memory/tp", "/memory/activation_bytes");
  profile.memory.state_bytes = file.number_attribute("/memory", "state_bytes");
  profile.memory.optimizer_share = file.number_attribute("/memory", "optimizer_share");
  profile.memory.constant_gap_bytes = file.number_attribute("/memory", "constant_gap_bytes");
  profile.memory.safety_bytes = file.number_attribute("/memory", "safety_bytes");
  profile.memory.device_bound_bytes = file.number_attribute("/memory", "device_bound_bytes");
  profile.limits = file.read_texts("/limits");
  return profile;
}

}  // namespace hydraulis::detail
