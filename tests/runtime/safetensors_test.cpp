#include "runtime/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "runtime/crc32c.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The bytes of a file with this header and data.
std::string file_bytes(std::string_view header, std::string_view data = "",
                       std::int64_t claimed = -1) {
  const std::uint64_t size = claimed < 0 ? header.size() : static_cast<std::uint64_t>(claimed);
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + std::string(header) + std::string(data);
}

/// One BF16[2] tensor {1, 2} as the reference implementation writes it (docs of the format).
std::string reference_file() {
  return file_bytes(
      R"({"__metadata__":{"format":"pt"},"model.norm.weight":{"dtype":"BF16","shape":[2],)"
      R"("data_offsets":[0,4]}}  )",
      std::string_view("\x80\x3f\x00\x40", 4));
}

TEST(Safetensors, ReadsTheReferenceFile) {
  const TemporaryFolder folder;
  const std::string bytes = reference_file();
  ASSERT_EQ(bytes.size(), 116u);
  const SafetensorsFile file(folder.write("a.safetensors", bytes));
  ASSERT_EQ(file.tensors().size(), 1u);
  EXPECT_EQ(file.tensors()[0].name, "model.norm.weight");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  std::vector<float> values(2);
  file.read<float>(0, 0, values);
  EXPECT_THAT(values, ElementsAre(1.0f, 2.0f));
  std::vector<double> last(1);
  file.read<double>(0, 1, last);
  EXPECT_EQ(last[0], 2.0);
  EXPECT_THROW(file.read<double>(0, 2, last), std::logic_error);
  EXPECT_EQ(file.find("model.norm"), -1);
}

TEST(Safetensors, WritesTheReferenceFileByteForByte) {
  const TemporaryFolder folder;
  const FileDigest digest = write_safetensors<double>(
      folder / "a.safetensors", {{"model.norm.weight", StoredType::bf16, {2}}},
      [](const StoredTensor&, std::int64_t first, std::span<double> values) {
        for (double& value : values) value = 1 + static_cast<double>(first++);
      });
  const std::string bytes = read_text_file(folder / "a.safetensors");
  EXPECT_EQ(bytes, reference_file());
  EXPECT_EQ(digest.bytes, bytes.size());
  EXPECT_EQ(digest.crc32c, crc32c(std::as_bytes(std::span(bytes))));
  EXPECT_EQ(digest_of(folder / "a.safetensors").crc32c, digest.crc32c);
}

TEST(Safetensors, OrdersTensorsByTypeThenNameAndKeepsEveryShape) {
  const TemporaryFolder folder;
  const std::vector<StoredTensor> tensors = {
      {"b", StoredType::bf16, {3}},           {"a", StoredType::f16, {2, 2}},
      {"scalar", StoredType::f32, {}},        {"empty", StoredType::f32, {5, 0}},
      {"wide", StoredType::f64, {1, 1}},      {"quote\"\\\u00e9", StoredType::f32, {1}},
      {"large", StoredType::f32, {1111, 777}}};
  const auto value = [](const StoredTensor& tensor, std::int64_t i) {
    return static_cast<double>((i + static_cast<std::int64_t>(tensor.name.size())) % 251) / 4;
  };
  write_safetensors<double>(
      folder / "a", tensors,
      [&](const StoredTensor& tensor, std::int64_t first, std::span<double> values) {
        for (double& x : values) x = value(tensor, first++);
      });
  const SafetensorsFile file(folder / "a");
  std::vector<std::string> names;
  for (const auto& tensor : file.tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("wide", "empty", "large", "quote\"\\\u00e9", "scalar", "a", "b"));
  for (const StoredTensor& tensor : tensors) {
    const std::int64_t index = file.find(tensor.name);
    ASSERT_GE(index, 0) << tensor.name;
    EXPECT_EQ(file.tensors()[static_cast<std::size_t>(index)].shape, tensor.shape);
    std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
    file.read<double>(index, 0, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], value(tensor, static_cast<std::int64_t>(i))) << tensor.name << i;
    }
  }
}

TEST(Safetensors, RefusesToWriteANumberTheTypeCannotHold) {
  const TemporaryFolder folder;
  const std::string message = message_of<InputError>([&] {
    write_safetensors<float>(folder / "a", {{"w", StoredType::f16, {600000}}},
                             [](const StoredTensor&, std::int64_t first, std::span<float> values) {
                               for (float& x : values) x = first++ == 599999 ? 70000.0f : 0.0f;
                             });
  });
  EXPECT_THAT(message, HasSubstr("tensor 'w': element 599999 is 70000, too large for F16"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));  // nothing half-written is left
}

struct Damage {
  std::string bytes;
  std::string message;
};

TEST(Safetensors, RefusesDamagedAndHostileFiles) {
  const auto entry = [](std::string_view fields) {
    return fmt::format(R"({{"t":{{{}}}}})", fields);
  };
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  std::string with_bad_utf8 = entry(good);
  with_bad_utf8[2] = '\xff';
  const std::vector<Damage> damages = {
      {"", "at least 10"},
      {"1234567", "at least 10"},
      {file_bytes("", ""), "does not begin with {"},
      {file_bytes("[]"), "does not begin with {"},
      {file_bytes("{}", "", 132095296), "at most 100000000"},
      {file_bytes("{}", "", INT64_MAX), "at most 100000000"},
      {file_bytes("{}", "", 100000000), "truncated"},
      {file_bytes("{}", "", 3), "truncated"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git LFS pointer"},
      {file_bytes("{", ""), "not valid JSON"},
      {file_bytes("{}x", ""), "not valid JSON"},
      {file_bytes(with_bad_utf8, "1234"), "not valid JSON"},
      {file_bytes(entry(good), "123"), "truncated"},
      {file_bytes(entry(good), "12345"), "something follows"},
      {file_bytes(R"({"t":1})"), "expected an object"},
      {file_bytes(R"({"t":[]})"), "expected an object"},
      {file_bytes(R"({"t":{}})"), "lacks dtype"},
      {file_bytes(R"({"t":{"dtype":"F32","shape":[1]}})"), "lacks dtype"},
      {file_bytes(R"({"__metadata__":{"a":1}})"), "does not belong"},
      {file_bytes(R"({"__metadata__":{"a":{}}})"), "does not belong"},
      {file_bytes(R"({"__metadata__":{"a":"b","a":"c"}})"), "given twice"},
      {file_bytes(entry(good + R"(,"dtype":"F32")"), "1234"), "given twice"},
      {file_bytes(fmt::format(R"({{"t":{{{0}}},"t":{{{0}}}}})", good), "1234"), "given twice"},
      {file_bytes(entry(R"("dtype":"F4","shape":[1],"data_offsets":[0,4])"), "1234"), "not known"},
      {file_bytes(entry(R"("dtype":1,"shape":[1],"data_offsets":[0,4])"), "1234"), "not belong"},
      {file_bytes(entry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), "1234"),
       "a negative number"},
      {file_bytes(entry(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), "1234"),
       "a fraction"},
      {file_bytes(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), "1234"),
       "expected 2"},
      {file_bytes(entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "1234"), "4 bytes"},
      {file_bytes(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "1234"), "8 bytes"},
      {file_bytes(entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "12345678"),
       "a hole"},
      {file_bytes(entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])")),
       "overflows"},
      {file_bytes(entry(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])")),
       "overflows"},
      {file_bytes(entry(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0])")),
       "dimension of"},
      {file_bytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                  R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                  "1234"),
       "an overlap"},
      {file_bytes(entry(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), "1234"),
       "nested deeper"},
      {file_bytes(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"more":[0])"), "1234"),
       "does not belong"},
  };
  const TemporaryFolder folder;
  for (const Damage& damage : damages) {
    const auto path = folder.write("bad.safetensors", damage.bytes);
    const std::string message = message_of<InputError>([&] { const SafetensorsFile file(path); });
    EXPECT_THAT(message, HasSubstr(damage.message)) << damage.bytes.substr(0, 200);
    EXPECT_THAT(message, HasSubstr("bad.safetensors"));
  }
  EXPECT_THROW(SafetensorsFile(folder.path()), InputError);
  EXPECT_THROW(SafetensorsFile(folder / "absent"), InputError);
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const TemporaryFolder folder;
  const std::string bytes = reference_file();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto path = folder.write("cut", bytes.substr(0, size));
    EXPECT_THROW(SafetensorsFile{path}, InputError) << size;
  }
}

TEST(Safetensors, AHeaderOfTheGreatestSizeIsAccepted) {
  const TemporaryFolder folder;
  std::string header = R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.resize(100'000'000, ' ');
  const auto path = folder.write("a", file_bytes(header, "x"));
  EXPECT_EQ(SafetensorsFile(path).tensors().size(), 1u);
}

TEST(Safetensors, ManyTensorsTakeNoQuadraticTime) {
  const TemporaryFolder folder;
  std::vector<StoredTensor> tensors;
  for (int i = 0; i < 200000; ++i) tensors.push_back({fmt::format("t{}", i), StoredType::f32, {0}});
  write_safetensors<float>(folder / "a", tensors, nullptr);
  EXPECT_EQ(SafetensorsFile(folder / "a").tensors().size(), tensors.size());
}

TEST(Safetensors, OnlyFloatingPointNumbersAreRead) {
  const TemporaryFolder folder;
  const SafetensorsFile file(folder.write(
      "a", file_bytes(R"({"t":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", "1234")));
  std::vector<float> values(4);
  EXPECT_THAT(message_of<InputError>([&] { file.read<float>(0, 0, values); }),
              HasSubstr("tensor 't' is stored as F8_E4M3"));
}

class Sharded : public testing::Test {
 protected:
  void write(const std::string& file, const std::vector<std::string>& names) {
    std::vector<StoredTensor> tensors;
    for (const auto& name : names) tensors.push_back({name, StoredType::f32, {1}});
    write_safetensors<float>(folder / file, tensors,
                             [](const StoredTensor& tensor, std::int64_t, std::span<float> values) {
                               values[0] = static_cast<float>(tensor.name[0]);
                             });
  }
  std::string refusal(const std::string& index) {
    folder.write("model.safetensors.index.json", index);
    return message_of<InputError>([&] { const SafetensorsFolder opened(folder.path()); });
  }
  TemporaryFolder folder;
};

TEST_F(Sharded, FollowsTheIndex) {
  write("model-00001-of-00002.safetensors", {"a", "b"});
  write("model-00002-of-00002.safetensors", {"c"});
  folder.write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":12},"weight_map":{"c":"model-00002-of-00002.safetensors",
      "a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors"}})");
  const SafetensorsFolder opened(folder.path());
  ASSERT_EQ(opened.tensors().size(), 3u);
  for (const auto& [name, place] : opened.tensors()) {
    float value = 0;
    opened.files()[place.file].read<float>(place.tensor, 0, std::span(&value, 1));
    EXPECT_EQ(value, static_cast<float>(name[0]));
  }
}

TEST_F(Sharded, TakesASingleFile) {
  write("model.safetensors", {"a", "b"});
  EXPECT_EQ(SafetensorsFolder(folder.path()).tensors().size(), 2u);
}

TEST_F(Sharded, RefusesAnIndexThatDoesNotFitItsFiles) {
  EXPECT_THAT(message_of<InputError>([&] { const SafetensorsFolder none(folder.path()); }),
              HasSubstr("neither model.safetensors nor"));
  write("x.safetensors", {"a", "b"});
  write("y.safetensors", {"b", "c"});
  EXPECT_THAT(refusal(R"({"weight_map":{"a":"x.safetensors"}})"), HasSubstr("'b' is not in"));
  EXPECT_THAT(refusal(R"({"weight_map":{"z":"x.safetensors"}})"), HasSubstr("'z' is not there"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":"absent.safetensors"}})"), HasSubstr("cannot open"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":"../x.safetensors"}})"), HasSubstr("same folder"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":1}})"), HasSubstr("expected a name"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":{}}})"), HasSubstr("not a name"));
  EXPECT_THAT(refusal(R"({"weight_map":[]})"), HasSubstr("expected an object"));
  EXPECT_THAT(refusal(R"({})"), HasSubstr("'weight_map' is missing"));
  EXPECT_THAT(
      refusal(R"({"weight_map":{"a":"x.safetensors","b":"x.safetensors","c":"y.safetensors"}})"),
      HasSubstr("'b' is said to be elsewhere"));
}

}  // namespace
}  // namespace hydraulis
