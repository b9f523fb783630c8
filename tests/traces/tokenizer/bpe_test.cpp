#include "traces/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/json.h"
#include "base/random.h"
#include "tests/traces/files.h"
#include "traces/tokenizer/unicode.h"

namespace hydraulis {
namespace {

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    const std::size_t bytes = next_piece(text);
    EXPECT_GT(bytes, 0u);
    result.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return result;
}

using Pieces = std::vector<std::string>;

// Worked out by hand from GPT-2's rule.
TEST(Pieces, FollowTheRule) {
  EXPECT_EQ(pieces("Hello world"), (Pieces{"Hello", " world"}));
  EXPECT_EQ(pieces("it's we'll they've I'd 'tis"),
            (Pieces{"it", "'s", " we", "'ll", " they", "'ve", " I", "'d", " '", "tis"}));
  EXPECT_EQ(pieces("'sa 'S 'r 're"), (Pieces{"'s", "a", " '", "S", " '", "r", " '", "re"}));
  EXPECT_EQ(pieces("a1b22 3.5"), (Pieces{"a", "1", "b", "22", " 3", ".", "5"}));
  EXPECT_EQ(pieces("a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(pieces("a\n\n  b"), (Pieces{"a", "\n\n ", " b"}));
  EXPECT_EQ(pieces("a\nb\t\tc  "), (Pieces{"a", "\n", "b", "\t", "\t", "c", "  "}));
  EXPECT_EQ(pieces(" \n"), (Pieces{" \n"}));
  EXPECT_EQ(pieces("x = {}; // ok!?"), (Pieces{"x", " =", " {};", " //", " ok", "!?"}));
  EXPECT_EQ(pieces("\u00e9t\u00e9 \u65e5\u672c\u8a9e\u0661\u0662"),
            (Pieces{"\u00e9t\u00e9", " \u65e5\u672c\u8a9e", "\u0661\u0662"}));
  EXPECT_EQ(pieces("a\u00a0\u2003b"), (Pieces{"a", "\u00a0", "\u2003", "b"}))
      << "only an ASCII space joins what follows";
  EXPECT_EQ(pieces("e\u0301"), (Pieces{"e", "\u0301"})) << "a combining mark is no letter";
  EXPECT_EQ(pieces("a\xff\xc3(b"), (Pieces{"a", "\xff\xc3(", "b"})) << "invalid UTF-8";
}

TEST(Unicode, Classes) {
  const auto kind = [](std::string_view text) { return decode(text, 0).kind; };
  EXPECT_EQ(kind("a"), CharacterClass::letter);
  EXPECT_EQ(kind("\u00df"), CharacterClass::letter);
  EXPECT_EQ(kind("\U0001d400"), CharacterClass::letter);
  EXPECT_EQ(kind("7"), CharacterClass::number);
  EXPECT_EQ(kind("\u00bd"), CharacterClass::number);
  EXPECT_EQ(kind("\u2028"), CharacterClass::space);
  EXPECT_EQ(kind("\u200b"), CharacterClass::other);
  EXPECT_EQ(kind("_"), CharacterClass::other);
  EXPECT_EQ(kind("\U0001f600"), CharacterClass::other);
  EXPECT_EQ(decode("\xed\xa0\x80", 0).bytes, 1u) << "a surrogate is not UTF-8";
  EXPECT_EQ(decode("\xc0\x80", 0).bytes, 1u) << "overlong";
  EXPECT_EQ(decode("\xe2\x82", 0).bytes, 1u) << "cut off";
}

/// GPT-2's printable stand-in for a byte, by its published rule.
std::string stand_in(std::uint32_t byte) {
  std::uint32_t extra = 256;
  for (std::uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    const std::uint32_t code = printable ? b : extra++;
    if (b == byte) return encode(code);
  }
  return "";
}

std::string stand_in(const std::string& text) {
  std::string result;
  for (const char c : text) result += stand_in(static_cast<unsigned char>(c));
  return result;
}

using MergeList = std::vector<std::pair<std::string, std::string>>;  // in bytes

class BpeTest : public ::testing::Test {
 protected:
  /// Files of the 256 byte tokens and the merges given.
  std::unique_ptr<Tokenizer> load(const MergeList& merges) {
    Json vocab = Json::object();
    bytes_of_.clear();
    const auto add = [&](const std::string& token) {
      const auto id = static_cast<std::int32_t>(5000 - bytes_of_.size());  // not in file order
      if (vocab.contains(stand_in(token))) return;
      vocab[stand_in(token)] = id;
      bytes_of_[id] = token;
    };
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    std::string lines = "#version: 0.2\n";
    for (const auto& [left, right] : merges) {
      add(left + right);
      lines += stand_in(left) + " " + stand_in(right) + "\n";
    }
    folder_.write("vocab.json", vocab.dump());
    folder_.write("merges.txt", lines);
    return make_tokenizer("bpe:" + (folder_ / "").string());
  }
  /// What the ids of a text stand for.
  std::vector<std::string> tokens_of(Tokenizer& bpe, std::string_view text) const {
    std::vector<std::int32_t> ids;
    bpe.encode(text, ids);
    std::vector<std::string> tokens;
    for (const std::int32_t id : ids) tokens.push_back(bytes_of_.at(id));
    return tokens;
  }
  std::map<std::int32_t, std::string> bytes_of_;
  TestFolder folder_;
};

TEST_F(BpeTest, HandWorkedCounts) {
  const auto bpe = load(
      {{"t", "h"}, {"th", "e"}, {" ", "the"}, {"l", "l"}, {"a", "b"}, {"ab", "ab"}, {"b", "a"}});
  EXPECT_EQ(bpe->count(""), 0u);
  EXPECT_EQ(bpe->count("the"), 1u);
  EXPECT_EQ(bpe->count("the the"), 2u);     // [the][ the]
  EXPECT_EQ(bpe->count("hello"), 4u);       // h e ll o
  EXPECT_EQ(bpe->count("lll"), 2u);         // ll l
  EXPECT_EQ(bpe->count("llll"), 2u);        // ll ll
  EXPECT_EQ(bpe->count("abab"), 1u);        // ab ab, then abab
  EXPECT_EQ(bpe->count("ababab"), 2u);      // abab ab
  EXPECT_EQ(bpe->count("baba"), 3u);        // b ab a: "a b" comes before "b a"
  EXPECT_EQ(bpe->count("th3the"), 3u);      // [th][3][the]
  EXPECT_EQ(bpe->count("\u00e9"), 2u);      // two bytes
  EXPECT_EQ(bpe->count("the  the\n"), 4u);  // [the][ ][ the][\n]
  EXPECT_EQ(tokens_of(*bpe, "hello the"), (Pieces{"h", "e", "ll", "o", " the"}));
}

/// The rule as GPT-2 states it: find the pair of the lowest rank, merge all its occurrences from
/// left to right, and again.
std::vector<std::string> naive_tokens(std::string_view text, const MergeList& merges) {
  std::vector<std::string> tokens;
  for (const std::string& piece : pieces(text)) {
    std::vector<std::string> parts;
    for (const char c : piece) parts.emplace_back(1, c);
    for (;;) {
      std::size_t best = merges.size();
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found =
            std::find(merges.begin(), merges.end(), std::make_pair(parts[i], parts[i + 1]));
        best = std::min(best, static_cast<std::size_t>(found - merges.begin()));
      }
      if (best == merges.size()) break;
      std::vector<std::string> merged;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i + 1 < parts.size() && parts[i] == merges[best].first &&
            parts[i + 1] == merges[best].second) {
          merged.push_back(parts[i] + parts[i + 1]);
          ++i;
        } else {
          merged.push_back(parts[i]);
        }
      }
      parts = std::move(merged);
    }
    tokens.insert(tokens.end(), parts.begin(), parts.end());
  }
  return tokens;
}

TEST_F(BpeTest, AgreesWithTheRuleOnRandomTexts) {
  Random random(3);
  for (int round = 0; round < 15; ++round) {
    // Merges as training makes them: only of tokens that exist already.
    std::vector<std::string> tokens = {"a", "b", "c", " ", "\n", "'"};
    MergeList merges;
    while (merges.size() < 25) {
      const auto pair =
          std::make_pair(tokens[random.below(tokens.size())], tokens[random.below(tokens.size())]);
      const std::string joined = pair.first + pair.second;
      if (joined.size() > 12 || std::find(tokens.begin(), tokens.end(), joined) != tokens.end()) {
        continue;
      }
      merges.push_back(pair);
      tokens.push_back(joined);
    }
    const auto bpe = load(merges);
    for (int text_number = 0; text_number < 40; ++text_number) {
      // Words of up to 120 letters: short, cached and long pieces all occur.
      std::string text;
      for (int word = 0; word < 6; ++word) {
        const std::uint64_t letters = random.below(text_number % 2 == 0 ? 10 : 120);
        for (std::uint64_t i = 0; i < letters; ++i) {
          text += static_cast<char>('a' + random.below(3));
        }
        text += " \n' "[random.below(4)];
      }
      const auto expected = naive_tokens(text, merges);
      EXPECT_EQ(bpe->count(text), expected.size()) << text;
      EXPECT_EQ(bpe->count(text), expected.size()) << "from the cache: " << text;
      EXPECT_EQ(tokens_of(*bpe, text), expected) << text;
    }
  }
}

TEST_F(BpeTest, AMegabyteWithoutASpaceIsNoTrap) {
  const auto bpe = load({{"a", "a"}, {"aa", "aa"}});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(bpe->count(std::string(1 << 20, 'a')), (1u << 20) / 4);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(BpeTest, BadFilesAreNamed) {
  load({{"a", "b"}});
  const auto message = [&] {
    return error_of([&] { make_tokenizer("bpe:" + (folder_ / "").string()); });
  };
  folder_.write("merges.txt", "");
  const Json good = read_json_file(folder_ / "vocab.json");
  Json vocab = good;
  vocab["zz"] = vocab["a"];
  folder_.write("vocab.json", vocab.dump());
  EXPECT_NE(message().find("has id"), std::string::npos) << message();
  vocab["zz"] = std::uint64_t{1} << 32;
  folder_.write("vocab.json", vocab.dump());
  EXPECT_NE(message().find("expected a token id up to"), std::string::npos) << message();
  folder_.write("vocab.json", good.dump());
  folder_.write("merges.txt", "a b\nb zz\n");
  EXPECT_NE(message().find("merges.txt: line 2: token 'zz' is not in"), std::string::npos)
      << message();
  folder_.write("merges.txt", "a b c\n");
  EXPECT_NE(message().find("line 1: expected two tokens"), std::string::npos);
  folder_.write("merges.txt", "ab\n");
  EXPECT_NE(message().find("line 1: expected two tokens"), std::string::npos);
  std::filesystem::remove(folder_ / "merges.txt");
  EXPECT_NE(message().find("merges.txt"), std::string::npos);
  folder_.write("vocab.json", "{\"a\": 0}");
  EXPECT_NE(message().find("not a byte-level vocabulary"), std::string::npos) << message();
  folder_.write("vocab.json", "{\"a\": \"0\"}");
  EXPECT_NE(message().find("expected a token id"), std::string::npos);
  folder_.write("vocab.json", "[1]");
  EXPECT_NE(message().find("expected an object"), std::string::npos);
  folder_.write("vocab.json", "{\"a\": ");
  EXPECT_NE(message().find("not valid JSON"), std::string::npos);
}

TEST(MakeTokenizer, Descriptions) {
  EXPECT_EQ(make_tokenizer("bytes")->count("\u00e9a"), 3u);
  EXPECT_EQ(make_tokenizer("words")->name(), "estimate: 1.33 tokens per word");
  const auto words = make_tokenizer("words:1.33");
  EXPECT_EQ(words->count("  one\ttwo\u00a0three "), 4u);  // 3 * 1.33 = 3.99
  EXPECT_EQ(words->count(" \n "), 0u);
  EXPECT_EQ(make_tokenizer("words:0.1")->count("one"), 1u) << "text is never estimated as empty";
  for (const char* bad : {"", "byte", "words:", "words:0", "words:-1", "words:nan", "words:inf",
                          "words:1x", "bpe", "bpe:", "gpt2"}) {
    EXPECT_THROW(make_tokenizer(bad), InputError) << bad;
  }
}

}  // namespace
}  // namespace hydraulis
