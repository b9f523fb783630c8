#include <fmt/format.h>

#include <limits>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/hdf5.h"
#include "costmodel/fit.h"
#include "costmodel/operator_profile.h"
#include "costmodel/profile_file.h"

namespace hydraulis {
namespace {

constexpr std::uint64_t kMostRows = 1'000'000;

/// Columns of one table, written under a group.
class TableWriter {
 public:
  TableWriter(Hdf5File& file, std::string group) : file_(file), group_(std::move(group)) {
    file_.create_group(group_);
  }
  template <typename Rows, typename Get>
  void integers(const char* name, const char* units, const Rows& rows, Get get) {
    std::vector<std::int64_t> values;
    for (const auto& row : rows) values.push_back(static_cast<std::int64_t>(get(row)));
    write<std::int64_t>(name, units, values);
  }
  template <typename Rows, typename Get>
  void numbers(const char* name, const char* units, const Rows& rows, Get get) {
    std::vector<double> values;
    for (const auto& row : rows) values.push_back(get(row));
    write<double>(name, units, values);
  }
  template <typename Rows, typename Get>
  void texts(const char* name, const Rows& rows, Get get) {
    std::vector<std::string> values;
    for (const auto& row : rows) values.emplace_back(get(row));
    file_.write_texts(at(name), values);
    file_.set_attribute(at(name), "units", std::string("text"));
  }

 private:
  std::string at(const char* name) const { return group_ + "/" + name; }
  template <typename T>
  void write(const char* name, const char* units, const std::vector<T>& values) {
    file_.write<T>(at(name), values);
    file_.set_attribute(at(name), "units", std::string(units));
  }
  Hdf5File& file_;
  std::string group_;
};

/// Columns of one table, read; all must have as many rows as the first.
class TableReader {
 public:
  TableReader(const Hdf5File& file, std::string where, std::string group, const char* first)
      : file_(file), where_(std::move(where)), group_(std::move(group)) {
    rows_ = file_.size(at(first));
    if (rows_ > kMostRows) {
      throw InputError("{}: dataset {} has {} rows, expected at most {}", where_, at(first), rows_,
                       kMostRows);
    }
  }
  std::size_t rows() const { return rows_; }
  std::vector<std::int64_t> integers(const char* name) const {
    check(name, file_.size(at(name)));
    return file_.read<std::int64_t>(at(name));
  }
  std::vector<int> small(const char* name) const {
    std::vector<int> values;
    for (const std::int64_t value : integers(name)) {
      if (value < 0 || value > std::numeric_limits<int>::max()) {
        throw InputError("{}: dataset {} holds {}, expected 0 to {}", where_, at(name), value,
                         std::numeric_limits<int>::max());
      }
      values.push_back(static_cast<int>(value));
    }
    return values;
  }
  std::vector<double> numbers(const char* name) const {
    check(name, file_.size(at(name)));
    return file_.read<double>(at(name));
  }
  std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> values = file_.read_texts(at(name));
    check(name, values.size());
    return values;
  }
  std::string at(const char* name) const { return group_ + "/" + name; }

 private:
  void check(const char* name, std::uint64_t size) const {
    if (size == rows_) return;
    throw InputError("{}: dataset {} has {} rows, expected {}", where_, at(name), size, rows_);
  }
  const Hdf5File& file_;
  std::string where_;
  std::string group_;
  std::uint64_t rows_ = 0;
};

template <typename Rows>
void write_timing(TableWriter& table, const Rows& rows) {
  table.numbers("median", "seconds", rows, [](const auto& r) { return r.time.median_seconds; });
  table.numbers("low", "seconds, 10 % quantile", rows,
                [](const auto& r) { return r.time.low_seconds; });
  table.numbers("high", "seconds, 90 % quantile", rows,
                [](const auto& r) { return r.time.high_seconds; });
  table.integers("repeats", "measurements", rows, [](const auto& r) { return r.time.repeats; });
  table.integers("steady", "0 or 1", rows, [](const auto& r) { return r.time.steady ? 1 : 0; });
}

template <typename Rows>
void read_timing(const TableReader& table, Rows& rows) {
  const auto median = table.numbers("median");
  const auto low = table.numbers("low");
  const auto high = table.numbers("high");
  const auto repeats = table.small("repeats");
  const auto steady = table.integers("steady");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].time = {median[i], low[i], high[i], repeats[i], steady[i] != 0};
  }
}

template <typename Rows>
void write_shapes(TableWriter& table, const Rows& rows) {
  table.texts("kernel", rows, [](const auto& r) { return to_string(r.shape.kernel); });
  table.texts("data_type", rows, [](const auto& r) { return r.data_type; });
  table.integers("inputs", "columns", rows, [](const auto& r) { return r.shape.inputs; });
  table.integers("outputs", "columns", rows, [](const auto& r) { return r.shape.outputs; });
  table.integers("width", "columns", rows, [](const auto& r) { return r.shape.width; });
  table.integers("heads", "heads", rows, [](const auto& r) { return r.shape.heads; });
  table.integers("kv_heads", "heads", rows, [](const auto& r) { return r.shape.kv_heads; });
  table.integers("head_dim", "columns", rows, [](const auto& r) { return r.shape.head_dim; });
}

void write_kernels(Hdf5File& file, const std::vector<KernelSample>& rows) {
  TableWriter table(file, "/samples/kernels");
  write_shapes(table, rows);
  table.integers("tokens", "rows", rows, [](const auto& r) { return r.tokens; });
  table.integers("length", "tokens a sequence", rows, [](const auto& r) { return r.length; });
  write_timing(table, rows);
  table.integers("allocated", "bytes", rows, [](const auto& r) { return r.allocated_bytes; });
}

std::vector<KernelSample> read_kernels(const Hdf5File& file, const std::string& where) {
  const TableReader table(file, where, "/samples/kernels", "tokens");
  std::vector<KernelSample> rows(table.rows());
  const auto kernel = table.texts("kernel");
  const auto type = table.texts("data_type");
  const auto inputs = table.integers("inputs");
  const auto outputs = table.integers("outputs");
  const auto width = table.integers("width");
  const auto heads = table.small("heads");
  const auto kv_heads = table.small("kv_heads");
  const auto head_dim = table.small("head_dim");
  const auto tokens = table.integers("tokens");
  const auto length = table.integers("length");
  const auto allocated = table.integers("allocated");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].shape = {parse_kernel(kernel[i], where + ": dataset " + table.at("kernel")),
                     inputs[i],
                     outputs[i],
                     width[i],
                     heads[i],
                     kv_heads[i],
                     head_dim[i]};
    rows[i].data_type = type[i];
    rows[i].tokens = tokens[i];
    rows[i].length = length[i];
    rows[i].allocated_bytes = allocated[i];
  }
  read_timing(table, rows);
  return rows;
}

void write_collectives(Hdf5File& file, const std::vector<CollectiveSample>& rows) {
  TableWriter table(file, "/samples/collectives");
  table.texts("operation", rows, [](const auto& r) { return to_string(r.operation); });
  table.integers("ranks", "ranks", rows, [](const auto& r) { return r.ranks; });
  table.integers("nodes", "nodes", rows, [](const auto& r) { return r.nodes; });
  table.integers("bytes", "bytes in total", rows, [](const auto& r) { return r.bytes; });
  table.integers("checked", "0 or 1", rows, [](const auto& r) { return r.checked ? 1 : 0; });
  table.texts("imported_from", rows, [](const auto& r) { return r.imported_from; });
  write_timing(table, rows);
}

std::vector<CollectiveSample> read_collectives(const Hdf5File& file, const std::string& where) {
  const TableReader table(file, where, "/samples/collectives", "bytes");
  std::vector<CollectiveSample> rows(table.rows());
  const auto operation = table.texts("operation");
  const auto ranks = table.small("ranks");
  const auto nodes = table.small("nodes");
  const auto bytes = table.integers("bytes");
  const auto checked = table.integers("checked");
  // Files of earlier versions do not say.
  std::vector<std::string> imported(rows.size());
  if (file.exists(table.at("imported_from"))) imported = table.texts("imported_from");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].operation =
        parse_collective(operation[i], where + ": dataset " + table.at("operation"));
    rows[i].ranks = ranks[i];
    rows[i].nodes = nodes[i];
    rows[i].bytes = bytes[i];
    rows[i].checked = checked[i] != 0;
    rows[i].imported_from = imported[i];
  }
  read_timing(table, rows);
  return rows;
}

void write_copies(Hdf5File& file, const std::vector<CopySample>& rows) {
  TableWriter table(file, "/samples/copies");
  table.texts("direction", rows, [](const auto& r) { return to_string(r.direction); });
  table.integers("bytes", "bytes", rows, [](const auto& r) { return r.bytes; });
  write_timing(table, rows);
}

std::vector<CopySample> read_copies(const Hdf5File& file, const std::string& where) {
  const TableReader table(file, where, "/samples/copies", "bytes");
  std::vector<CopySample> rows(table.rows());
  const auto direction = table.texts("direction");
  const auto bytes = table.integers("bytes");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].direction =
        parse_copy_direction(direction[i], where + ": dataset " + table.at("direction"));
    rows[i].bytes = bytes[i];
  }
  read_timing(table, rows);
  return rows;
}

void write_machine(Hdf5File& file, const MachineDescription& machine) {
  file.create_group("/machine");
  const auto text = [&](const char* name, const std::string& value) {
    file.set_attribute("/machine", name, value);
  };
  const auto integer = [&](const char* name, std::int64_t value) {
    file.set_attribute("/machine", name, value);
  };
  const auto number = [&](const char* name, double value) {
    file.set_attribute("/machine", name, value);
  };
  text("device", machine.device);
  text("backend", machine.backend);
  text("processor", machine.processor);
  text("host", machine.host);
  text("date", machine.date);
  integer("cores", machine.cores);
  integer("threads_per_rank", machine.threads_per_rank);
  integer("ranks", machine.ranks);
  integer("nodes", machine.nodes);
  number("memory_bytes", machine.memory_bytes);
  number("clock_hertz", machine.clock_hertz);
  number("peak_flops", machine.peak_flops);
  number("memory_bytes_per_second", machine.memory_bytes_per_second);
  TableWriter table(file, "/machine/software");
  table.texts("name", machine.software, [](const auto& r) { return r.first; });
  table.texts("version", machine.software, [](const auto& r) { return r.second; });
}

MachineDescription read_machine(const Hdf5File& file, const std::string& where) {
  const auto text = [&](const char* name) { return file.text_attribute("/machine", name); };
  const auto number = [&](const char* name) { return file.number_attribute("/machine", name); };
  const auto small = [&](const char* name) {
    return detail::small_attribute(file, where, "/machine", name);
  };
  MachineDescription machine;
  machine.device = text("device");
  machine.backend = text("backend");
  machine.processor = text("processor");
  machine.host = text("host");
  machine.date = text("date");
  machine.cores = small("cores");
  machine.threads_per_rank = small("threads_per_rank");
  machine.ranks = small("ranks");
  machine.nodes = small("nodes");
  machine.memory_bytes = number("memory_bytes");
  machine.clock_hertz = number("clock_hertz");
  machine.peak_flops = number("peak_flops");
  machine.memory_bytes_per_second = number("memory_bytes_per_second");
  const auto names = file.read_texts("/machine/software/name");
  const auto versions = file.read_texts("/machine/software/version");
  if (names.size() != versions.size()) {
    throw InputError("{}: dataset /machine/software/version has {} rows, expected {}", where,
                     versions.size(), names.size());
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    machine.software.emplace_back(names[i], versions[i]);
  }
  return machine;
}

void write_ranks(Hdf5File& file, const std::vector<RankSpeed>& rows) {
  TableWriter table(file, "/ranks");
  table.integers("rank", "rank", rows, [](const RankSpeed& r) { return r.rank; });
  table.texts("host", rows, [](const RankSpeed& r) { return r.host; });
  table.numbers("flops", "operations per second", rows, [](const RankSpeed& r) { return r.flops; });
  table.numbers("copy", "bytes per second, read and written", rows,
                [](const RankSpeed& r) { return r.copy_bytes_per_second; });
}

std::vector<RankSpeed> read_ranks(const Hdf5File& file, const std::string& where) {
  const TableReader table(file, where, "/ranks", "rank");
  std::vector<RankSpeed> rows(table.rows());
  const auto rank = table.small("rank");
  const auto host = table.texts("host");
  const auto flops = table.numbers("flops");
  const auto copy = table.numbers("copy");
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = {rank[i], host[i], flops[i], copy[i]};
  return rows;
}

void write_corrections(Hdf5File& file, const std::vector<Correction>& rows) {
  TableWriter table(file, "/corrections");
  table.texts("time", rows, [](const Correction& r) { return to_string(r.time); });
  table.texts("scheme", rows, [](const Correction& r) { return r.scheme; });
  table.numbers("factor", "measured over predicted", rows,
                [](const Correction& r) { return r.factor; });
}

std::vector<Correction> read_corrections(const Hdf5File& file, const std::string& where) {
  const TableReader table(file, where, "/corrections", "factor");
  std::vector<Correction> rows(table.rows());
  const auto time = table.texts("time");
  const auto scheme = table.texts("scheme");
  const auto factor = table.numbers("factor");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {parse_corrected_time(time[i], where + ": " + table.at("time")), scheme[i],
               factor[i]};
  }
  return rows;
}

template <typename Rows>
void write_quality(TableWriter& table, const Rows& rows) {
  table.numbers("latency", "value at 0, in the units of the pieces", rows,
                [](const auto& r) { return r.curve.start; });
  table.integers("points", "measurements", rows, [](const auto& r) { return r.quality.points; });
  table.numbers("mean_error", "relative", rows, [](const auto& r) { return r.quality.mean_error; });
  table.numbers("max_error", "relative", rows, [](const auto& r) { return r.quality.max_error; });
  table.integers("bad", "0 or 1", rows, [](const auto& r) { return r.quality.bad() ? 1 : 0; });
}

/// Straight pieces of all curves of a table, one row a piece.
template <typename Rows>
void write_pieces(Hdf5File& file, const std::string& group, const Rows& rows, const char* units) {
  struct Piece {
    std::int64_t fit;
    double from;
    double slope;
  };
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const MonotoneCurve& curve = rows[i].curve;
    for (std::size_t j = 0; j < curve.slopes.size(); ++j) {
      pieces.push_back(
          {static_cast<std::int64_t>(i), j == 0 ? 0 : curve.knots[j - 1], curve.slopes[j]});
    }
  }
  TableWriter table(file, group);
  table.integers("fit", "row of the fits' table", pieces, [](const Piece& p) { return p.fit; });
  table.numbers("from", "where the piece begins, rows or bytes", pieces,
                [](const Piece& p) { return p.from; });
  table.numbers("slope", units, pieces, [](const Piece& p) { return p.slope; });
}

void write_fits(Hdf5File& file, const OperatorFits& fits) {
  file.create_group("/fits");
  {
    TableWriter table(file, "/fits/kernels");
    write_shapes(table, fits.kernels);
    table.numbers("a", "seconds per token squared", fits.kernels,
                  [](const KernelFit& r) { return r.a; });
    table.numbers("b", "seconds per token", fits.kernels, [](const KernelFit& r) { return r.b; });
    table.numbers("c", "seconds per call", fits.kernels, [](const KernelFit& r) { return r.c; });
    table.integers("by_length", "0 or 1: the pieces are seconds per token by mean length",
                   fits.kernels, [](const KernelFit& r) { return r.by_length ? 1 : 0; });
    table.numbers("least_tokens", "rows", fits.kernels,
                  [](const KernelFit& r) { return r.least_tokens; });
    table.numbers("most_tokens", "rows", fits.kernels,
                  [](const KernelFit& r) { return r.most_tokens; });
    table.numbers("longest", "tokens a sequence", fits.kernels,
                  [](const KernelFit& r) { return r.longest; });
    write_quality(table, fits.kernels);
    write_pieces(file, "/fits/kernels/pieces", fits.kernels,
                 "seconds per row; by_length: seconds per token and token of length");
  }
  {
    TableWriter table(file, "/fits/collectives");
    table.texts("operation", fits.collectives,
                [](const CollectiveFit& r) { return to_string(r.operation); });
    table.integers("ranks", "ranks", fits.collectives,
                   [](const CollectiveFit& r) { return r.ranks; });
    table.integers("nodes", "nodes", fits.collectives,
                   [](const CollectiveFit& r) { return r.nodes; });
    write_quality(table, fits.collectives);
    write_pieces(file, "/fits/collectives/pieces", fits.collectives, "seconds per byte");
  }
  {
    TableWriter table(file, "/fits/copies");
    table.texts("direction", fits.copies, [](const CopyFit& r) { return to_string(r.direction); });
    write_quality(table, fits.copies);
    write_pieces(file, "/fits/copies/pieces", fits.copies, "seconds per byte");
  }
}

}  // namespace

void write_operator_profile(const OperatorProfile& profile, const std::filesystem::path& path) {
  const OperatorFits fits = fit_operators(profile, path.string());
  AtomicFile target(path);
  Hdf5File file = Hdf5File::create(target.temporary(), path.string());
  detail::write_profile_head(file, detail::kOperatorKind);
  file.set_attribute("/", "name", profile.name);
  file.set_attribute("/", "origin", profile.origin);
  write_machine(file, profile.machine);
  write_ranks(file, profile.ranks);
  file.create_group("/samples");
  write_kernels(file, profile.kernels);
  write_collectives(file, profile.collectives);
  write_copies(file, profile.copies);
  file.create_group("/memory");
  file.set_attribute("/memory", "process_bytes", profile.memory.process_bytes);
  file.set_attribute("/memory", "workspace_bytes", profile.memory.workspace_bytes);
  {
    TableWriter table(file, "/excluded");
    table.texts("what", profile.excluded, [](const ExcludedPoint& r) { return r.what; });
    table.texts("reason", profile.excluded, [](const ExcludedPoint& r) { return r.reason; });
  }
  file.write_texts("/notes", profile.notes);
  if (!profile.corrections.empty()) write_corrections(file, profile.corrections);
  write_fits(file, fits);
  file.close();
  target.commit();
}

OperatorProfile read_operator_profile(const std::filesystem::path& path) {
  const std::string where = path.string();
  const Hdf5File file = Hdf5File::open(path);
  if (detail::read_profile_head(file, where) != detail::kOperatorKind) {
    throw InputError("{}: is a profile of whole stages, expected one of operators", where);
  }
  OperatorProfile profile;
  profile.name = file.text_attribute("/", "name");
  profile.origin = file.text_attribute("/", "origin");
  profile.machine = read_machine(file, where);
  profile.ranks = read_ranks(file, where);
  profile.kernels = read_kernels(file, where);
  profile.collectives = read_collectives(file, where);
  profile.copies = read_copies(file, where);
  profile.memory.process_bytes = file.integer_attribute("/memory", "process_bytes");
  profile.memory.workspace_bytes = file.integer_attribute("/memory", "workspace_bytes");
  const auto what = file.read_texts("/excluded/what");
  const auto reason = file.read_texts("/excluded/reason");
  if (what.size() != reason.size()) {
    throw InputError("{}: dataset /excluded/reason has {} rows, expected {}", where, reason.size(),
                     what.size());
  }
  for (std::size_t i = 0; i < what.size(); ++i) profile.excluded.push_back({what[i], reason[i]});
  profile.notes = file.read_texts("/notes");
  if (file.exists("/corrections")) profile.corrections = read_corrections(file, where);
  check_operator_profile(profile, where);
  return profile;
}

}  // namespace hydraulis
