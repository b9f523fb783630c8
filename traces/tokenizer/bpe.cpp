#include "traces/tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "traces/import/line_reader.h"
#include "traces/import/number.h"
#include "traces/tokenizer/unicode.h"

namespace hydraulis {
namespace {

constexpr std::uint32_t kMostIds = 1u << 30;
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

struct Merge {
  std::uint32_t rank = kNone;
  std::uint32_t result = kNone;
};

std::uint64_t pair_key(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32 | right;
}

/// What a vocabulary and its merges come to.
struct BpeTables {
  std::array<std::uint32_t, 256> bytes{};  ///< id of each byte's token
  std::unordered_map<std::uint64_t, Merge> merges;
};

/// GPT-2 writes every byte as a printable character: printable bytes as themselves, the others as
/// the code points from 256 on in order.
std::array<std::string, 256> byte_characters() {
  std::array<std::string, 256> characters;
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    characters[byte] = encode(printable ? byte : next++);
  }
  return characters;
}

std::unordered_map<std::string, std::uint32_t> read_vocabulary(const std::filesystem::path& path) {
  const Json json = read_json_file(path);
  if (!json.is_object()) {
    throw InputError("{}: is {}, expected an object of token: id", path.string(), json.type_name());
  }
  std::unordered_map<std::string, std::uint32_t> ids;
  std::unordered_map<std::uint32_t, std::string> tokens;
  for (const auto& item : json.items()) {
    if (!item.value().is_number_unsigned()) {
      throw InputError("{}: field '{}' is {}, expected a token id", path.string(),
                       excerpt(item.key()), item.value().type_name());
    }
    const auto id = item.value().get<std::uint64_t>();
    if (id > kMostIds) {
      throw InputError("{}: field '{}' is {}, expected a token id up to {}", path.string(),
                       excerpt(item.key()), id, kMostIds);
    }
    const auto [other, added] = tokens.emplace(static_cast<std::uint32_t>(id), item.key());
    if (!added) {
      throw InputError("{}: field '{}' has id {}, as '{}' has", path.string(), excerpt(item.key()),
                       id, excerpt(other->second));
    }
    ids.emplace(item.key(), static_cast<std::uint32_t>(id));
  }
  return ids;
}

BpeTables read_tables(const std::filesystem::path& vocab, const std::filesystem::path& merges) {
  const auto ids = read_vocabulary(vocab);
  BpeTables tables;
  const auto characters = byte_characters();
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(characters[byte]);
    if (found == ids.end()) {
      throw InputError("{}: no token for byte {} ('{}'): not a byte-level vocabulary",
                       vocab.string(), byte, characters[byte]);
    }
    tables.bytes[byte] = found->second;
  }
  LineReader reader(merges, 1u << 16);
  std::string_view line;
  std::uint32_t rank = 0;
  while (reader.next(line)) {
    if (line.empty() || (reader.number() == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      throw InputError("{}: line {}: expected two tokens with a space between them",
                       merges.string(), reader.number());
    }
    const std::string left(line.substr(0, space));
    const std::string right(line.substr(space + 1));
    std::array<std::uint32_t, 3> id{};
    std::size_t at = 0;
    for (const std::string& token : {left, right, left + right}) {
      const auto found = ids.find(token);
      if (found == ids.end()) {
        throw InputError("{}: line {}: token '{}' is not in {}", merges.string(), reader.number(),
                         token.size() > 60 ? token.substr(0, 60) : token, vocab.string());
      }
      id[at++] = found->second;
    }
    tables.merges.try_emplace(pair_key(id[0], id[1]), Merge{rank++, id[2]});
  }
  return tables;
}

class Bpe : public Tokenizer {
 public:
  Bpe(BpeTables tables, std::string name) : tables_(std::move(tables)), name_(std::move(name)) {}

  std::uint64_t count(std::string_view text) override {
    std::uint64_t tokens = 0;
    while (!text.empty()) {
      const std::size_t bytes = next_piece(text);
      tokens += count_piece(text.substr(0, bytes));
      text.remove_prefix(bytes);
    }
    return tokens;
  }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) override {
    while (!text.empty()) {
      const std::size_t bytes = next_piece(text);
      for (const std::uint32_t id : piece_ids(text.substr(0, bytes))) {
        ids.push_back(static_cast<std::int32_t>(id));
      }
      text.remove_prefix(bytes);
    }
  }
  std::string name() const override { return name_; }

 private:
  /// Most pieces of a corpus are a few common words; rare and long ones are not worth the memory.
  static constexpr std::size_t kLongestCached = 48;
  static constexpr std::size_t kMostCached = 1u << 17;
  static constexpr std::size_t kShort = 24;

  std::uint64_t count_piece(std::string_view piece) {
    return piece.size() == 1 ? 1 : piece_ids(piece).size();
  }

  /// Valid until the next call.
  const std::vector<std::uint32_t>& piece_ids(std::string_view piece) {
    if (piece.size() > kLongestCached) return ids_ = merge_by_queue(piece);
    key_.assign(piece);
    const auto found = cache_.find(key_);
    if (found != cache_.end()) return found->second;
    if (cache_.size() >= kMostCached) cache_.clear();
    return cache_[key_] = piece.size() <= kShort ? merge_by_scan(piece) : merge_by_queue(piece);
  }

  Merge find(std::uint32_t left, std::uint32_t right) const {
    const auto found = tables_.merges.find(pair_key(left, right));
    return found == tables_.merges.end() ? Merge{} : found->second;
  }

  /// Again and again merges the pair of the lowest rank, the leftmost first.
  std::vector<std::uint32_t> merge_by_scan(std::string_view piece) {
    std::array<std::uint32_t, kShort> ids{};
    std::size_t count = piece.size();
    for (std::size_t i = 0; i < count; ++i) {
      ids[i] = tables_.bytes[static_cast<unsigned char>(piece[i])];
    }
    for (;;) {
      Merge best;
      std::size_t where = 0;
      for (std::size_t i = 0; i + 1 < count; ++i) {
        const Merge merge = find(ids[i], ids[i + 1]);
        if (merge.rank < best.rank) {
          best = merge;
          where = i;
        }
      }
      if (best.rank == kNone) {
        return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)};
      }
      ids[where] = best.result;
      std::copy(ids.begin() + static_cast<std::ptrdiff_t>(where) + 2,
                ids.begin() + static_cast<std::ptrdiff_t>(count),
                ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
      --count;
    }
  }

  /// The same in n log n, so that a megabyte without a space is no trap.
  std::vector<std::uint32_t> merge_by_queue(std::string_view piece) {
    struct Symbol {
      std::uint32_t id;
      std::size_t previous;
      std::size_t next;
    };
    struct Candidate {
      std::uint32_t rank;
      std::size_t at;
      std::uint32_t left, right;
      bool operator<(const Candidate& other) const {  // std::priority_queue pops the greatest
        return rank != other.rank ? rank > other.rank : at > other.at;
      }
    };
    constexpr auto kEnd = std::numeric_limits<std::size_t>::max();
    std::vector<Symbol> symbols(piece.size());
    for (std::size_t i = 0; i < piece.size(); ++i) {
      symbols[i] = {tables_.bytes[static_cast<unsigned char>(piece[i])], i == 0 ? kEnd : i - 1,
                    i + 1 == piece.size() ? kEnd : i + 1};
    }
    std::priority_queue<Candidate> queue;
    const auto offer = [&](std::size_t at) {
      if (at == kEnd || symbols[at].next == kEnd) return;
      const std::uint32_t left = symbols[at].id;
      const std::uint32_t right = symbols[symbols[at].next].id;
      const Merge merge = find(left, right);
      if (merge.rank != kNone) queue.push({merge.rank, at, left, right});
    };
    for (std::size_t i = 0; i < symbols.size(); ++i) offer(i);
    while (!queue.empty()) {
      const Candidate candidate = queue.top();
      queue.pop();
      Symbol& symbol = symbols[candidate.at];
      // A merge since then may have taken either side of the pair away.
      if (symbol.id != candidate.left || symbol.next == kEnd ||
          symbols[symbol.next].id != candidate.right) {
        continue;
      }
      const std::size_t gone = symbol.next;
      symbol.id = find(candidate.left, candidate.right).result;
      symbol.next = symbols[gone].next;
      symbols[gone].id = kNone;
      if (symbol.next != kEnd) symbols[symbol.next].previous = candidate.at;
      offer(candidate.at);
      offer(symbol.previous);
    }
    std::vector<std::uint32_t> ids;
    for (std::size_t at = 0; at != kEnd; at = symbols[at].next) ids.push_back(symbols[at].id);
    return ids;
  }

  BpeTables tables_;
  std::string name_;
  std::string key_;
  std::vector<std::uint32_t> ids_;
  std::unordered_map<std::string, std::vector<std::uint32_t>> cache_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_bpe(const std::filesystem::path& vocab,
                                    const std::filesystem::path& merges) {
  BpeTables tables = read_tables(vocab, merges);
  std::string name =
      fmt::format("byte-level BPE of {} ({} merges)", vocab.string(), tables.merges.size());
  return std::make_unique<Bpe>(std::move(tables), std::move(name));
}

}  // namespace hydraulis
