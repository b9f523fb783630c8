#include "traces/store.h"

#include <algorithm>
#include <limits>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/hdf5.h"

namespace hydraulis {
namespace {

constexpr const char* kLengths = "/lengths";
/// Whole HDF5 chunks are written at a time, so that none is compressed twice.
constexpr std::size_t kBlock = 64 * 1024;

std::uint64_t count_attribute(const Hdf5File& file, const std::string& name,
                              const std::filesystem::path& path) {
  const std::int64_t value = file.integer_attribute("/", name);
  if (value < 0) {
    throw InputError("{}: attribute '{}' is {}, expected 0 or more", path.string(), name, value);
  }
  return static_cast<std::uint64_t>(value);
}

}  // namespace

struct TraceWriter::State {
  explicit State(const std::filesystem::path& target)
      : file(target), hdf5(Hdf5File::create(file.temporary(), target.string())) {
    hdf5.create_dataset<std::uint32_t>(kLengths);
    block.reserve(kBlock);
  }
  void flush() {
    hdf5.append<std::uint32_t>(kLengths, block);
    block.clear();
  }
  AtomicFile file;
  Hdf5File hdf5;
  std::vector<std::uint32_t> block;
  std::uint64_t sequences = 0;
  std::uint64_t tokens = 0;
};

TraceWriter::TraceWriter(const std::filesystem::path& target)
    : state_(std::make_unique<State>(target)) {}

TraceWriter::~TraceWriter() = default;

void TraceWriter::append(std::span<const std::uint32_t> lengths) {
  for (const std::uint32_t length : lengths) state_->tokens += length;
  state_->sequences += lengths.size();
  while (!lengths.empty()) {
    const std::size_t room = std::min(kBlock - state_->block.size(), lengths.size());
    state_->block.insert(state_->block.end(), lengths.begin(),
                         lengths.begin() + static_cast<std::ptrdiff_t>(room));
    lengths = lengths.subspan(room);
    if (state_->block.size() == kBlock) state_->flush();
  }
}

void TraceWriter::finish(const LengthTrace& info) {
  State& s = *state_;
  s.flush();
  s.hdf5.set_attribute("/", "format", std::string(kTraceFormat));
  s.hdf5.set_attribute("/", "version", std::int64_t{kTraceVersion});
  s.hdf5.set_attribute("/", "source", info.source);
  s.hdf5.set_attribute("/", "tokenizer", info.tokenizer);
  s.hdf5.set_attribute("/", "sequences", static_cast<std::int64_t>(s.sequences));
  s.hdf5.set_attribute("/", "tokens", static_cast<std::int64_t>(s.tokens));
  s.hdf5.set_attribute("/", "empty_documents", static_cast<std::int64_t>(info.empty_documents));
  if (!info.origin.empty()) s.hdf5.set_attribute("/", "origin", info.origin);
  if (!info.licence.empty()) s.hdf5.set_attribute("/", "licence", info.licence);
  s.hdf5.close();
  s.file.commit();
}

void write_trace(const std::filesystem::path& target, const LengthTrace& trace) {
  TraceWriter writer(target);
  writer.append(trace.lengths);
  writer.finish(trace);
}

LengthTrace read_trace(const std::filesystem::path& path) {
  const Hdf5File file = Hdf5File::open(path);
  if (!file.has_attribute("/", "format") ||
      file.text_attribute("/", "format") != std::string(kTraceFormat)) {
    throw InputError("{}: not a length trace: attribute 'format' is {}, expected \"{}\"",
                     path.string(),
                     file.has_attribute("/", "format")
                         ? "\"" + file.text_attribute("/", "format").substr(0, 80) + "\""
                         : std::string("missing"),
                     kTraceFormat);
  }
  if (const std::int64_t version = file.integer_attribute("/", "version");
      version != kTraceVersion) {
    throw InputError("{}: length trace of version {}, this program reads version {}", path.string(),
                     version, kTraceVersion);
  }
  LengthTrace trace;
  trace.source = file.text_attribute("/", "source");
  trace.tokenizer = file.text_attribute("/", "tokenizer");
  trace.empty_documents = count_attribute(file, "empty_documents", path);
  if (file.has_attribute("/", "origin")) trace.origin = file.text_attribute("/", "origin");
  if (file.has_attribute("/", "licence")) trace.licence = file.text_attribute("/", "licence");

  const std::uint64_t claimed = count_attribute(file, "sequences", path);
  const std::uint64_t claimed_tokens = count_attribute(file, "tokens", path);
  const std::uint64_t stored = file.size(kLengths);
  if (claimed != stored) {
    throw InputError("{}: attribute 'sequences' says {}, but {} holds {} lengths", path.string(),
                     claimed, kLengths, stored);
  }
  if (stored > std::numeric_limits<std::uint32_t>::max()) {
    throw InputError("{}: {} lengths, at most {} are supported", path.string(), stored,
                     std::numeric_limits<std::uint32_t>::max());
  }
  // The vector grows with what is really read: chunks that a hostile file only claims read as
  // zeros, which are refused before the next block is asked for.
  constexpr std::uint64_t kReadBlock = 16 * kBlock;
  std::uint64_t tokens = 0;
  for (std::uint64_t begin = 0; begin < stored; begin += kReadBlock) {
    const std::uint64_t count = std::min(kReadBlock, stored - begin);
    const auto block = file.read<std::uint32_t>(kLengths, begin, count);
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (block[i] == 0) {
        throw InputError("{}: {}[{}] is 0, expected at least 1 token", path.string(), kLengths,
                         begin + i);
      }
      tokens += block[i];
    }
    trace.lengths.insert(trace.lengths.end(), block.begin(), block.end());
  }
  if (tokens != claimed_tokens) {
    throw InputError("{}: attribute 'tokens' says {}, but the lengths add up to {}", path.string(),
                     claimed_tokens, tokens);
  }
  return trace;
}

}  // namespace hydraulis
