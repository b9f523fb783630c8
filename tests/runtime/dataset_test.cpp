#include "runtime/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int32_t> tokens_of(const Dataset& data, std::uint64_t sequence) {
  std::vector<std::int32_t> tokens(data.lengths().at(sequence));
  data.read(sequence, 0, tokens);
  return tokens;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class Megatron : public testing::Test {
 protected:
  /// Sequences of 3, 2, 4 tokens in documents {0, 1}, {2}, and an empty one.
  template <typename T>
  void write(std::uint8_t type, const std::vector<T>& tokens,
             std::vector<std::int64_t> index = {0, 2, 3, 3},
             std::vector<std::int64_t> offsets = {0, 3 * sizeof(T), 5 * sizeof(T)}) {
    std::string bytes("MMIDIDX\0\0", 9);
    bytes += bytes_of<std::uint64_t>({1}) + static_cast<char>(type);
    bytes += bytes_of<std::uint64_t>({3, index.size()}) + bytes_of<std::int32_t>({3, 2, 4});
    folder.write("a.idx", bytes + bytes_of(offsets) + bytes_of(index));
    folder.write("a.bin", bytes_of(tokens));
  }
  std::unique_ptr<Dataset> open(DocumentUnit unit = DocumentUnit::document) {
    DatasetSource source;
    source.path = (folder / "a.bin").string();
    source.unit = unit;
    return open_dataset(source);
  }
  std::string refusal(DocumentUnit unit = DocumentUnit::document) {
    return message_of<InputError>([&] { open(unit); });
  }
  TemporaryFolder folder;
};

template <typename T>
std::vector<T> nine(T first) {
  std::vector<T> values;
  for (int i = 0; i < 9; ++i) values.push_back(static_cast<T>(first + static_cast<T>(i)));
  return values;
}

TEST_F(Megatron, ReadsDocumentsAndSequencesOfEveryType) {
  const auto check = [&](std::int32_t base) {
    const auto documents = open();
    EXPECT_THAT(documents->lengths(), ElementsAre(5, 4, 0));
    EXPECT_THAT(tokens_of(*documents, 0),
                ElementsAre(base, base + 1, base + 2, base + 3, base + 4));
    EXPECT_THAT(tokens_of(*documents, 1), ElementsAre(base + 5, base + 6, base + 7, base + 8));
    EXPECT_THAT(tokens_of(*documents, 2), ElementsAre());
    const auto sequences = open(DocumentUnit::sequence);
    EXPECT_THAT(sequences->lengths(), ElementsAre(3, 2, 4));
    std::vector<std::int32_t> part(2);
    sequences->read(2, 1, part);
    EXPECT_THAT(part, ElementsAre(base + 6, base + 7));
    EXPECT_EQ(sequences->prompt_tokens(1), 0u);
  };
  write<std::uint8_t>(1, nine<std::uint8_t>(200));
  check(200);
  write<std::int8_t>(2, nine<std::int8_t>(100));
  check(100);
  write<std::int16_t>(3, nine<std::int16_t>(30000));
  check(30000);
  write<std::int32_t>(4, nine<std::int32_t>(128000));
  check(128000);
  write<std::int64_t>(5, nine<std::int64_t>(128000));
  check(128000);
  write<std::uint16_t>(8, nine<std::uint16_t>(65000));
  check(65000);
}

TEST_F(Megatron, RefusesWhatItsFilesCannotHold) {
  write<float>(7, nine<float>(1));
  EXPECT_THAT(refusal(), HasSubstr("elements are float32"));
  write<std::int32_t>(4, nine<std::int32_t>(-5));
  const auto negative = open();
  EXPECT_THAT(message_of<InputError>([&] { tokens_of(*negative, 0); }),
              HasSubstr("sequence 0: token 0 is -5"));
  write<std::int64_t>(5, nine<std::int64_t>(std::int64_t{1} << 40));
  const auto large = open();
  EXPECT_THAT(message_of<InputError>([&] { tokens_of(*large, 1); }), HasSubstr("sequence 1"));
  write<std::int32_t>(4, {1, 2, 3});
  EXPECT_THAT(refusal(), HasSubstr("sequence 1 has 2 tokens at byte 12, but"));
  write<std::int32_t>(4, nine<std::int32_t>(0), {0, 2, 3}, {0, -12, 20});
  EXPECT_THAT(refusal(), HasSubstr("at byte -12"));
  write<std::int32_t>(4, nine<std::int32_t>(0), {0, 2, 3}, {0, 16, 20});
  EXPECT_THAT(refusal(), HasSubstr("does not follow"));
  EXPECT_EQ(open(DocumentUnit::sequence)->lengths().size(), 3u);
  write<std::int32_t>(4, nine<std::int32_t>(0), {0, 2});
  EXPECT_THAT(refusal(), HasSubstr("ends at sequence 2"));
  write<std::int32_t>(4, nine<std::int32_t>(0), {0, 3, 2});
  EXPECT_THAT(refusal(), HasSubstr("entry 2 is 2"));
  std::filesystem::remove(folder / "a.bin");
  EXPECT_THAT(refusal(), HasSubstr("a.bin: cannot open"));
}

class Text : public testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const std::string& name, const std::string& text) {
    source.path = folder.write(name, text).string();
    return open_dataset(source);
  }
  std::string refusal(const std::string& name, const std::string& text) {
    return message_of<InputError>([&] { open(name, text); });
  }
  TemporaryFolder folder;
  DatasetSource source = [] {
    DatasetSource made;
    made.tokenizer = "bytes";
    return made;
  }();
};

TEST_F(Text, ALineIsADocument) {
  source.end_token = 256;
  const auto data = open("a.jsonl",
                         "\xef\xbb\xbf{\"text\":\"ab\"}\r\n\n{\"text\":\"\",\"x\":[]}\n"
                         "{\"id\":1,\"text\":\"\u00e9\"}");
  EXPECT_THAT(data->lengths(), ElementsAre(3, 0, 3));
  EXPECT_THAT(tokens_of(*data, 0), ElementsAre('a', 'b', 256));
  EXPECT_THAT(tokens_of(*data, 2), ElementsAre(0xc3, 0xa9, 256));
}

TEST_F(Text, AFileIsADocument) {
  const auto data = open("a.txt", "a\nb");
  EXPECT_THAT(data->lengths(), ElementsAre(3));
  EXPECT_THAT(tokens_of(*data, 0), ElementsAre('a', '\n', 'b'));
}

TEST_F(Text, PromptsAreKnownApart) {
  source.prompt_field = "question";
  source.response_field = "answer";
  source.end_token = 0;
  const auto data =
      open("a.jsonl",
           "{\"question\":\"why?\",\"answer\":\"so\"}\n"
           "{\"answer\":\"x\",\"question\":\"\"}\n{\"question\":\"y\",\"answer\":\"\"}");
  EXPECT_THAT(data->lengths(), ElementsAre(7, 2, 2));
  EXPECT_THAT(tokens_of(*data, 0), ElementsAre('w', 'h', 'y', '?', 's', 'o', 0));
  EXPECT_EQ(data->prompt_tokens(0), 4u);
  EXPECT_EQ(data->prompt_tokens(1), 0u);
  EXPECT_EQ(data->prompt_tokens(2), 1u);
  EXPECT_THAT(refusal("a.jsonl", "{\"question\":\"why?\"}"),
              HasSubstr("line 1: field 'answer' is missing"));
}

TEST_F(Text, BadLinesAreNamed) {
  EXPECT_THAT(refusal("a.jsonl", "{\"text\":\"a\"}\n{\"text\":"), HasSubstr("line 2: not valid"));
  EXPECT_THAT(refusal("a.jsonl", "{\"text\":7}"), HasSubstr("'text' is number, expected a string"));
  EXPECT_THAT(refusal("a.jsonl", "[]"), HasSubstr("expected an object"));
  EXPECT_THAT(refusal("a.jsonl", "{\"text\":\"a\",\"text\":\"b\"}"), HasSubstr("given twice"));
  EXPECT_THAT(refusal("a.csv", ""), HasSubstr("no known data set"));
  source.tokenizer = "words:1.3";
  EXPECT_THAT(refusal("a.txt", ""), HasSubstr("only estimates"));
  source.tokenizer = "";
  EXPECT_THAT(refusal("a.txt", ""), HasSubstr("need a tokenizer"));
  source.tokenizer = "bytes";
  EXPECT_THAT(refusal("a.idx", ""), HasSubstr("holds tokens already"));
  source.prompt_field = "x";
  EXPECT_THAT(refusal("a.txt", ""), HasSubstr("go together"));
}

}  // namespace
}  // namespace hydraulis
