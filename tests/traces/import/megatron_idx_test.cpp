#include <gtest/gtest.h>
#include <sys/resource.h>

#include <numeric>

#include "base/error.h"
#include "tests/traces/files.h"
#include "traces/import/import.h"

namespace hydraulis {
namespace {

/// A Megatron index field by field, so that every test can spoil the one it is about.
struct Idx {
  std::string magic{"MMIDIDX\0\0", 9};
  std::uint64_t version = 1;
  std::uint8_t type = 8;  // uint16
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> index;
  std::vector<std::int64_t> pointers;  // filled by default_pointers() if empty
  std::uint64_t claimed_sequences = UINT64_MAX;
  std::uint64_t claimed_entries = UINT64_MAX;
  std::string tail;

  std::string bytes(std::int64_t element_bytes = 2) const {
    std::string out = magic;
    append(out, version);
    append(out, type);
    append(out,
           claimed_sequences == UINT64_MAX ? std::uint64_t{lengths.size()} : claimed_sequences);
    append(out, claimed_entries == UINT64_MAX ? std::uint64_t{index.size()} : claimed_entries);
    for (const auto length : lengths) append(out, length);
    std::int64_t pointer = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      append(out, pointers.empty() ? pointer : pointers[i]);
      pointer += std::int64_t{lengths[i]} * element_bytes;
    }
    for (const auto entry : index) append(out, entry);
    return out + tail;
  }
};

class MegatronIdx : public ::testing::Test {
 protected:
  LengthTrace load(const std::string& bytes, DocumentUnit unit = DocumentUnit::document) {
    ImportOptions options;
    options.input = folder_.write("corpus.idx", bytes);
    options.unit = unit;
    return import_in_memory(options, &report_);
  }
  std::string error(const std::string& bytes, DocumentUnit unit = DocumentUnit::document) {
    return error_of([&] { load(bytes, unit); });
  }
  TestFolder folder_;
  ImportReport report_;
};

using Lengths = std::vector<std::uint32_t>;

Idx three_sequences() {
  Idx idx;
  idx.lengths = {3, 2, 4};
  idx.index = {0, 2, 3};
  return idx;
}

TEST_F(MegatronIdx, DocumentsAreSumsOfTheirSequences) {
  const LengthTrace trace = load(three_sequences().bytes());
  EXPECT_EQ(trace.lengths, (Lengths{5, 4}));
  EXPECT_TRUE(trace.warnings.empty());
  EXPECT_NE(trace.tokenizer.find("uint16"), std::string::npos);
  EXPECT_NE(trace.origin.find("no end-of-text token added"), std::string::npos);
  EXPECT_EQ(load(three_sequences().bytes(), DocumentUnit::sequence).lengths, (Lengths{3, 2, 4}));
}

TEST_F(MegatronIdx, BytesOfThePublishedLayout) {
  // Written by hand from the format's description: sequences 3, 2, 4; documents {0, 1}, {2}.
  const unsigned char raw[] = {
      0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, 1, 0, 0, 0, 0, 0,   0, 0, 8, 3, 0, 0, 0, 0, 0,
      0,    0,    3,    0,    0,    0,    0,    0, 0, 0, 3, 0, 0, 0, 2,   0, 0, 0, 4, 0, 0, 0, 0, 0,
      0,    0,    0,    0,    0,    0,    6,    0, 0, 0, 0, 0, 0, 0, 0xa, 0, 0, 0, 0, 0, 0, 0, 0, 0,
      0,    0,    0,    0,    0,    0,    2,    0, 0, 0, 0, 0, 0, 0, 3,   0, 0, 0, 0, 0, 0, 0};
  const std::string bytes(reinterpret_cast<const char*>(raw), sizeof raw);
  EXPECT_EQ(bytes, three_sequences().bytes());
  EXPECT_EQ(load(bytes).lengths, (Lengths{5, 4}));
}

// E01: empty documents are left out and counted; figures over both bases.
TEST_F(MegatronIdx, EmptyDocumentsAreCounted) {
  Idx idx;
  idx.lengths = {0, 5, 0, 0, 7, 0};
  idx.index = {0, 1, 2, 3, 4, 5, 6};
  const LengthTrace trace = load(idx.bytes());
  EXPECT_EQ(trace.lengths, (Lengths{5, 7}));
  EXPECT_EQ(trace.empty_documents, 4u);
  EXPECT_EQ(report_.documents_read, 6u);
  EXPECT_EQ(report_.mean_with_empty(), 2.0);
  EXPECT_EQ(report_.mean_without_empty(), 6.0);
  EXPECT_EQ(report_.shortest, 5u);
  EXPECT_EQ(report_.longest, 7u);
}

TEST_F(MegatronIdx, RepeatedIndexEntriesAreEmptyDocuments) {
  Idx idx;
  idx.lengths = {5, 7};
  idx.index = {0, 0, 1, 1, 2, 2};
  EXPECT_EQ(load(idx.bytes()).lengths, (Lengths{5, 7}));
  EXPECT_EQ(report_.empty_documents, 3u);
}

TEST_F(MegatronIdx, NoSequencesIsSaid) {
  Idx idx;
  EXPECT_NE(error(idx.bytes()).find("no sequences"), std::string::npos);
  idx.index = {0};
  EXPECT_NE(error(idx.bytes()).find("no sequences"), std::string::npos);
  idx.index = {0, 0, 0};
  EXPECT_NE(error(idx.bytes()).find("2 documents, 2 of them empty"), std::string::npos);
}

// E02: totals and pointers beyond 32 bits.
TEST_F(MegatronIdx, ThreeSequencesOfTwoToTheThirty) {
  Idx idx;
  idx.type = 4;  // int32
  idx.lengths = {1 << 30, 1 << 30, 1 << 30};
  idx.index = {0, 1, 2, 3};
  idx.pointers = {0, 4294967296, 8589934592};
  const LengthTrace trace = load(idx.bytes());
  EXPECT_EQ(report_.tokens, 3221225472u);
  EXPECT_EQ(trace.lengths, (Lengths{1u << 30, 1u << 30, 1u << 30}));
  EXPECT_TRUE(trace.warnings.empty());
  idx.index = {0, 3};
  EXPECT_EQ(load(idx.bytes()).lengths, (Lengths{3221225472u})) << "one document of 3 * 2^30";
}

TEST_F(MegatronIdx, OneSequenceOfTheGreatestLength) {
  Idx idx;
  idx.lengths = {INT32_MAX};
  idx.index = {0, 1};
  EXPECT_EQ(load(idx.bytes()).lengths, (Lengths{2147483647u}));
}

TEST_F(MegatronIdx, DocumentBeyond32BitsIsRefusedAndTheUnitNamed) {
  Idx idx;
  idx.lengths = {INT32_MAX, INT32_MAX, INT32_MAX};
  idx.index = {0, 3};
  const std::string message = error(idx.bytes());
  EXPECT_NE(message.find("document 0"), std::string::npos) << message;
  EXPECT_NE(message.find("unit sequence"), std::string::npos) << message;
  EXPECT_EQ(load(idx.bytes(), DocumentUnit::sequence).lengths.size(), 3u);
}

TEST_F(MegatronIdx, WrongPointersAreAWarning) {
  Idx idx;
  idx.type = 4;
  idx.lengths = {1 << 30, 1 << 30, 1 << 30};
  idx.index = {0, 1, 2, 3};
  for (const auto& pointers : {std::vector<std::int64_t>{0, 0, 0}, {0, -4294967296, -1}}) {
    idx.pointers = pointers;
    const LengthTrace trace = load(idx.bytes());
    EXPECT_EQ(trace.lengths.size(), 3u);
    ASSERT_EQ(trace.warnings.size(), 1u);
    EXPECT_NE(trace.warnings[0].find("pointers inconsistent: 2 of 3"), std::string::npos)
        << trace.warnings[0];
  }
}

// E04: what is refused, with the reason.
TEST_F(MegatronIdx, MislabelledFilesAreRefused) {
  Idx idx = three_sequences();
  idx.magic[3] = 'X';
  EXPECT_NE(error(idx.bytes()).find("MMIDIDX"), std::string::npos);
  idx = three_sequences();
  idx.version = 2;
  EXPECT_NE(error(idx.bytes()).find("version 2, expected 1"), std::string::npos);
  for (const std::uint8_t type : std::vector<std::uint8_t>{0, 9, 255}) {
    idx = three_sequences();
    idx.type = type;
    EXPECT_NE(error(idx.bytes()).find("type code"), std::string::npos);
  }
  EXPECT_NE(error("MMIDIDX").find("7 bytes"), std::string::npos);
  EXPECT_NE(error("").find("0 bytes"), std::string::npos);
}

TEST_F(MegatronIdx, TruncatedAndTrailingBytesAreRefusedWithBothSizes) {
  const std::string good = three_sequences().bytes();
  ASSERT_EQ(good.size(), 94u);
  for (std::size_t size = 34; size < good.size(); ++size) {
    const std::string message = error(good.substr(0, size));
    EXPECT_NE(message.find(std::to_string(size) + " bytes, expected 94"), std::string::npos)
        << message;
  }
  EXPECT_NE(error(good + "x").find("95 bytes, expected 94"), std::string::npos);
  EXPECT_NE(error(good + std::string(100, 'x')).find("194 bytes"), std::string::npos);
  EXPECT_EQ(load(good + std::string(3, '\0')).lengths, (Lengths{5, 4})) << "modes, one a sequence";
}

TEST_F(MegatronIdx, HugeCountsAreRefusedWithoutAllocation) {
  struct Claim {
    std::uint64_t sequences, entries;
  };
  for (const Claim claim : {Claim{UINT64_MAX - 1, 3},
                            {3, UINT64_MAX - 1},
                            {UINT64_MAX / 12, UINT64_MAX / 8},
                            {1ULL << 40, 3},
                            {0x1555555555555556ULL, 3},
                            {3, 1ULL << 61},
                            {3, (1ULL << 61) + 3}}) {
    Idx idx = three_sequences();
    idx.claimed_sequences = claim.sequences;
    idx.claimed_entries = claim.entries;
    rusage before{};
    getrusage(RUSAGE_SELF, &before);
    const std::string message = error(idx.bytes());
    rusage after{};
    getrusage(RUSAGE_SELF, &after);
    EXPECT_NE(message.find("94"), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(claim.sequences)), std::string::npos) << message;
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 50 * 1024) << "KiB";
  }
}

TEST_F(MegatronIdx, DocumentIndexMustRiseFromZeroToTheEnd) {
  const auto with_index = [](std::vector<std::int64_t> index) {
    Idx idx = three_sequences();
    idx.index = std::move(index);
    return idx.bytes();
  };
  EXPECT_NE(error(with_index({1, 2, 3})).find("begins with 1"), std::string::npos);
  EXPECT_NE(error(with_index({0, 2, 1, 3})).find("entry 2 is 1"), std::string::npos);
  EXPECT_NE(error(with_index({0, 2, 4})).find("entry 2 is 4"), std::string::npos);
  EXPECT_NE(error(with_index({0, -1, 3})).find("entry 1 is -1"), std::string::npos);
  EXPECT_NE(error(with_index({0, 2})).find("ends at sequence 2, expected 3"), std::string::npos);
  EXPECT_NE(error(with_index({})).find("document index is empty"), std::string::npos);
}

TEST_F(MegatronIdx, NegativeLengthIsRefused) {
  Idx idx = three_sequences();
  idx.lengths[1] = -2;
  const std::string message = error(idx.bytes());
  EXPECT_NE(message.find("sequence 1 has length -2"), std::string::npos) << message;
}

TEST_F(MegatronIdx, TokenFileBesideIsCompared) {
  folder_.write("corpus.bin", std::string(18, 'x'));
  EXPECT_TRUE(load(three_sequences().bytes()).warnings.empty());
  folder_.write("corpus.bin", std::string(17, 'x'));
  const LengthTrace trace = load(three_sequences().bytes());
  ASSERT_EQ(trace.warnings.size(), 1u);
  EXPECT_NE(trace.warnings[0].find("17 bytes, the index describes 18"), std::string::npos);
}

TEST_F(MegatronIdx, LargeIndexAcrossBufferEdges) {
  Idx idx;
  idx.index = {0};
  Lengths expected;
  for (std::int32_t i = 0; i < 100000; ++i) {
    idx.lengths.push_back(1 + i % 1000);
    if (i % 3 == 2) {
      idx.index.push_back(i + 1);
      expected.push_back(
          static_cast<std::uint32_t>(3 + (i - 2) % 1000 + (i - 1) % 1000 + i % 1000));
    }
  }
  idx.index.push_back(100000);
  expected.push_back(1 + 99999 % 1000);
  EXPECT_EQ(load(idx.bytes()).lengths, expected);
  EXPECT_TRUE(report_.warnings.empty());
}

}  // namespace
}  // namespace hydraulis
