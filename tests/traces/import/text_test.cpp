// Importers of lists and texts: lines, histogram, u32 and JSONL, plain and compressed.
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <numeric>

#include "tests/traces/files.h"
#include "traces/import/import.h"
#include "traces/store.h"

namespace hydraulis {
namespace {

using Lengths = std::vector<std::uint32_t>;

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

class TextImport : public ::testing::Test {
 protected:
  LengthTrace load(const std::string& name, const std::string& bytes) {
    options_.input = folder_.write(name, bytes);
    return import_in_memory(options_, &report_);
  }
  std::string error(const std::string& name, const std::string& bytes) {
    return error_of([&] { load(name, bytes); });
  }
  TestFolder folder_;
  ImportOptions options_;
  ImportReport report_;
};

// E05: a byte order mark, blank lines, carriage returns and a missing last newline are no faults.
TEST_F(TextImport, LinesTolerateWhatEditorsLeave) {
  EXPECT_EQ(load("l.txt",
                 "\xef\xbb\xbf"
                 "12\r\n\r\n  7 \n\n\t\n900")
                .lengths,
            (Lengths{12, 7, 900}));
  EXPECT_EQ(load("l.txt", "1\n").lengths, (Lengths{1})) << "A08: a single one";
  EXPECT_EQ(load("l.txt", "4294967295\n").lengths, (Lengths{4294967295u}));
}

// A23: zeros are skipped with a count.
TEST_F(TextImport, ZerosAreCounted) {
  const LengthTrace trace = load("l.txt", "0\n1\n0\n1\n1\n");
  EXPECT_EQ(trace.lengths, (Lengths{1, 1, 1}));
  EXPECT_EQ(trace.empty_documents, 2u);
  EXPECT_NE(error("l.txt", "0\n0\n").find("2 documents, 2 of them empty"), std::string::npos);
  EXPECT_NE(error("l.txt", "").find("no sequences"), std::string::npos);
}

TEST_F(TextImport, BadLinesAreNamedOrSkippedOnRequest) {
  for (const std::string bad : {"-5", "4294967296", "1.5", "12 13", "abc", "+3", "0x10", "1e3",
                                "99999999999999999999999"}) {
    const std::string text = "1\n\n" + bad + "\n4\n";
    options_.skip_bad_lines = false;
    const std::string message = error("l.txt", text);
    EXPECT_NE(message.find("l.txt: line 3: '" + bad.substr(0, 40)), std::string::npos) << message;
    options_.skip_bad_lines = true;
    const LengthTrace trace = load("l.txt", text);
    EXPECT_EQ(trace.lengths, (Lengths{1, 4}));
    EXPECT_EQ(report_.bad_lines, 1u);
    EXPECT_EQ(trace.warnings.size(), 1u);
  }
}

TEST_F(TextImport, EndlessLineIsRefused) {
  EXPECT_NE(error("l.txt", std::string(2000000, '1')).find("line 1 is longer than 4096"),
            std::string::npos);
}

TEST_F(TextImport, BinaryJunkIsRefusedOnOneCleanLine) {
  const std::string message = error("l.txt", std::string("\x01\x02\xff\x00\x1b[31m\n", 10));
  EXPECT_NE(message.find("line 1"), std::string::npos);
  for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
}

TEST_F(TextImport, HistogramExpandsItsCounts) {
  EXPECT_EQ(load("h.csv", "length,count\n5,2\n0,3\n7,1").lengths, (Lengths{5, 5, 7}));
  EXPECT_EQ(report_.empty_documents, 3u);
  EXPECT_EQ(load("h.csv", "5 , 2\r\n\r\n9,0\r\n").lengths, (Lengths{5, 5}));
  EXPECT_NE(error("h.csv", "length,count\n5\n").find("line 2"), std::string::npos);
  EXPECT_NE(error("h.csv", "5,-2\n").find("line 1"), std::string::npos);
  EXPECT_NE(error("h.csv", "-5,2\n").find("line 1"), std::string::npos);
  EXPECT_NE(error("h.csv", "5,2,3\n").find("line 1"), std::string::npos);
  EXPECT_NE(error("h.csv", "5,18446744073709551615\n").find("more than"), std::string::npos);
  EXPECT_NE(error("h.csv", "5,1\n6,268435456\n").find("line 2"), std::string::npos);
}

TEST_F(TextImport, RawLengths) {
  std::string bytes;
  for (const std::uint32_t length : {3u, 0u, 70000u, 4294967295u}) append(bytes, length);
  EXPECT_EQ(load("r.u32", bytes).lengths, (Lengths{3, 70000, 4294967295u}));
  EXPECT_NE(error("r.u32", bytes + "x").find("17 bytes, expected a multiple of 4"),
            std::string::npos);
}

TEST_F(TextImport, JsonLinesCountTheChosenField) {
  const std::string text =
      "\xef\xbb\xbf{\"text\": \"abc\", \"n\": [1, {\"text\": 5}]}\r\n\n"
      "{\"id\": {\"text\": \"inner\"}, \"text\": \"\\u00e9\\n\"}\n"
      "{\"text\": \"\"}\n{\"content\": \"longer\", \"text\": \"x\"}";
  EXPECT_EQ(load("d.jsonl", text).lengths, (Lengths{3, 3, 1}));
  EXPECT_EQ(report_.empty_documents, 1u);
  EXPECT_EQ(report_.tokenizer, "bytes");
  options_.text_field = "content";
  EXPECT_EQ(load("d.jsonl", "{\"content\": \"longer\"}").lengths, (Lengths{6}));
}

TEST_F(TextImport, BadJsonLinesAreNamed) {
  const auto message = [&](const std::string& line) {
    return error("d.jsonl", "{\"text\": \"a\"}\n\n" + line + "\n{\"text\": \"b\"}\n");
  };
  EXPECT_NE(message("{\"text\": 5}").find("line 3: field 'text' is a number, expected a string"),
            std::string::npos);
  EXPECT_NE(message("{\"text\": null}").find("is null"), std::string::npos);
  EXPECT_NE(message("{\"text\": [\"a\"]}").find("is an array"), std::string::npos);
  EXPECT_NE(message("{\"text\": {\"text\": \"a\"}}").find("is an object"), std::string::npos);
  EXPECT_NE(message("{\"test\": \"a\"}").find("field 'text' is missing"), std::string::npos);
  EXPECT_NE(message("{\"text\": \"a\", \"n\": 1, \"text\": \"b\"}")
                .find("line 3: field 'text' is given twice"),
            std::string::npos);
  EXPECT_NE(message("[\"text\"]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(message("\"text\"").find("not a JSON object"), std::string::npos);
  EXPECT_NE(message("{\"text\": \"a").find("line 3: not valid JSON"), std::string::npos);
  EXPECT_NE(message("{\"text\": \"\xff\"}").find("line 3: not valid JSON"), std::string::npos);
  EXPECT_NE(message("{\"text\": \"a\"} {}").find("line 3: not valid JSON"), std::string::npos);
  EXPECT_NE(message("{\"n\": 1e999, \"text\": \"a\"}").find("line 3"), std::string::npos);
  EXPECT_NE(message(std::string(200000, '[')).find("line 3: not valid JSON"), std::string::npos);
  options_.skip_bad_lines = true;
  EXPECT_EQ(load("d.jsonl", "{\"text\": \"a\"}\nnonsense\n{\"text\": 1}\n").lengths, (Lengths{1}));
  EXPECT_EQ(report_.bad_lines, 2u);
}

TEST_F(TextImport, CompressedFilesReadTheSame) {
  std::string text;
  Lengths expected;
  for (int i = 0; i < 50000; ++i) {
    text += "{\"text\": \"" + std::string(static_cast<std::size_t>(1 + i % 97), 'x') + "\"}\n";
    expected.push_back(static_cast<std::uint32_t>(1 + i % 97));
  }
  EXPECT_EQ(load("d.jsonl.gz", gzip(text)).lengths, expected);
  EXPECT_EQ(load("d.jsonl.zst", zstd(text)).lengths, expected);
  const std::size_t middle = text.find('\n', text.size() / 2) + 1;
  EXPECT_EQ(load("d.jsonl.gz", gzip(text.substr(0, middle)) + gzip(text.substr(middle))).lengths,
            expected)
      << "concatenated members";
  EXPECT_EQ(load("d.jsonl.zst", zstd(text.substr(0, middle)) + zstd(text.substr(middle))).lengths,
            expected);
  EXPECT_EQ(load("l.txt.gz", gzip("5\n6\n")).lengths, (Lengths{5, 6}));
  EXPECT_EQ(load("h.csv.zst", zstd("5,2\n")).lengths, (Lengths{5, 5}));
}

TEST_F(TextImport, DamagedCompressedFilesAreRefused) {
  const std::string text = "{\"text\": \"abcdefghij\"}\n{\"text\": \"klm\"}\n";
  for (const std::string name : {"d.jsonl.gz", "d.jsonl.zst"}) {
    const std::string good = name.ends_with("gz") ? gzip(text) : zstd(text);
    EXPECT_NE(error(name, good.substr(0, good.size() - 3)).find("cut off"), std::string::npos)
        << name;
    EXPECT_NE(error(name, text).find("not a valid"), std::string::npos) << "mislabelled " << name;
    EXPECT_NE(error(name, "").find("cut off"), std::string::npos) << "empty " << name;
  }
}

TEST_F(TextImport, WordsAreLabelledAsAnEstimate) {
  options_.tokenizer = "words:1.5";
  EXPECT_EQ(load("d.jsonl", "{\"text\": \" one two\\n three\\u2003four \"}\n").lengths,
            (Lengths{6}));
  EXPECT_EQ(report_.tokenizer, "estimate: 1.5 tokens per word");
}

TEST_F(TextImport, UnknownEndingsFormatsAndFilesAreNamed) {
  EXPECT_NE(error("d.parquet", "x").find("cannot tell the format"), std::string::npos);
  options_.format = "arrow";
  EXPECT_NE(error("d.txt", "1").find("megatron-idx"), std::string::npos);
  options_.format = "lines";
  EXPECT_EQ(load("d.weird", "1\n").lengths, (Lengths{1}));
  options_.input = folder_ / "absent.txt";
  EXPECT_NE(error_of([&] { import_in_memory(options_); }).find("no such file"), std::string::npos);
  options_.input = folder_ / ".";
  EXPECT_NE(error_of([&] { import_in_memory(options_); }).find("folder"), std::string::npos);
  EXPECT_THROW(parse_document_unit("page"), InputError);
}

TEST_F(TextImport, ToFileEqualsInMemoryAndFailureLeavesNothing) {
  std::string text;
  for (int i = 1; i <= 200000; ++i) text += std::to_string(i % 5000) + "\n";
  const LengthTrace memory = load("l.txt", text);
  const ImportReport report = import_trace(options_, folder_ / "t.h5");
  const LengthTrace stored = read_trace(folder_ / "t.h5");
  EXPECT_EQ(stored.lengths, memory.lengths);
  EXPECT_EQ(stored.empty_documents, 40u);
  EXPECT_EQ(report.tokens, std::accumulate(stored.lengths.begin(), stored.lengths.end(), 0ull));
  EXPECT_EQ(stored.source, "l.txt");

  const std::size_t files = folder_.files();
  options_.input = folder_.write("l.txt", text + "bad\n");
  EXPECT_THROW(import_trace(options_, folder_ / "u.h5"), InputError);
  EXPECT_EQ(folder_.files(), files) << "no partial output";
  EXPECT_THROW(import_trace(options_, (folder_ / "absent") / "u.h5"), InputError);
}

}  // namespace
}  // namespace hydraulis
