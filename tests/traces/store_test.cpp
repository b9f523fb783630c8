#include "traces/store.h"

#include <gtest/gtest.h>

#include "base/hdf5.h"
#include "tests/traces/files.h"

namespace hydraulis {
namespace {

LengthTrace sample() {
  LengthTrace trace;
  for (std::uint32_t i = 1; i < 150000; ++i) trace.lengths.push_back(i * 2654435761u | 1u);
  trace.source = "some corpus";
  trace.tokenizer = "bytes";
  trace.empty_documents = 3;
  trace.origin = "made for a test";
  trace.licence = "free";
  return trace;
}

TEST(Store, RoundTrip) {
  TestFolder folder;
  const LengthTrace trace = sample();
  write_trace(folder / "t.h5", trace);
  const LengthTrace read = read_trace(folder / "t.h5");
  EXPECT_EQ(read.lengths, trace.lengths);
  EXPECT_EQ(read.source, trace.source);
  EXPECT_EQ(read.tokenizer, trace.tokenizer);
  EXPECT_EQ(read.empty_documents, 3u);
  EXPECT_EQ(read.origin, trace.origin);
  EXPECT_EQ(read.licence, trace.licence);
  EXPECT_EQ(folder.files(), 1u);
}

TEST(Store, UnfinishedWriterLeavesNothing) {
  TestFolder folder;
  {
    TraceWriter writer(folder / "t.h5");
    writer.append(sample().lengths);
  }
  EXPECT_EQ(folder.files(), 0u);
  EXPECT_THROW(TraceWriter(folder / "absent/t.h5"), InputError);
}

/// A trace file with one thing spoilt.
struct Spoilt {
  std::string format = kTraceFormat;
  std::int64_t version = 1;
  std::int64_t sequences = 3;
  std::int64_t tokens = 6;
  std::int64_t empty_documents = 0;
  std::vector<std::uint32_t> lengths = {1, 2, 3};
};

std::string error_of_file(const Spoilt& spoilt) {
  TestFolder folder;
  {
    Hdf5File file = Hdf5File::create(folder / "t.h5", "t.h5");
    file.write<std::uint32_t>("/lengths", spoilt.lengths);
    file.set_attribute("/", "format", spoilt.format);
    file.set_attribute("/", "version", spoilt.version);
    file.set_attribute("/", "source", std::string("s"));
    file.set_attribute("/", "tokenizer", std::string("t"));
    file.set_attribute("/", "sequences", spoilt.sequences);
    file.set_attribute("/", "tokens", spoilt.tokens);
    file.set_attribute("/", "empty_documents", spoilt.empty_documents);
    file.close();
  }
  return error_of([&] { read_trace(folder / "t.h5"); });
}

TEST(Store, ContradictionsAreRefused) {
  const auto expect = [](auto spoil, const std::string& reason) {
    Spoilt spoilt;
    spoil(spoilt);
    const std::string message = error_of_file(spoilt);
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  };
  EXPECT_EQ(error_of_file({}), "no error");
  expect([](Spoilt& s) { s.format = "hydraulis-profile"; }, "not a length trace");
  expect([](Spoilt& s) { s.version = 2; }, "version 2");
  expect([](Spoilt& s) { s.sequences = 1LL << 60; }, "'sequences' says 1152921504606846976");
  expect([](Spoilt& s) { s.sequences = -3; }, "'sequences' is -3");
  expect([](Spoilt& s) { s.tokens = 7; }, "add up to 6");
  expect([](Spoilt& s) { s.empty_documents = -1; }, "'empty_documents' is -1");
  expect([](Spoilt& s) { s.lengths = {1, 0, 5}; }, "[1] is 0");
}

TEST(Store, SparseDatasetThatClaimsALotIsRefusedEarly) {
  TestFolder folder;
  {
    Hdf5File file = Hdf5File::create(folder / "t.h5", "t.h5");
    file.create_dataset<std::uint32_t>("/lengths");
    file.set_attribute("/", "format", std::string(kTraceFormat));
    file.set_attribute("/", "version", std::int64_t{1});
    file.set_attribute("/", "source", std::string("s"));
    file.set_attribute("/", "tokenizer", std::string("t"));
    file.set_attribute("/", "sequences", std::int64_t{4000000000});
    file.set_attribute("/", "tokens", std::int64_t{4000000000});
    file.set_attribute("/", "empty_documents", std::int64_t{0});
    file.close();
  }
  {
    const Hdf5Handle file(H5Fopen((folder / "t.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
    const Hdf5Handle dataset(H5Dopen2(file.get(), "/lengths", H5P_DEFAULT), H5Dclose);
    const hsize_t extent = 4000000000;
    ASSERT_GE(H5Dset_extent(dataset.get(), &extent), 0);
  }
  const std::string message = error_of([&] { read_trace(folder / "t.h5"); });
  EXPECT_NE(message.find("claims 4000000000 elements"), std::string::npos) << message;
}

TEST(Store, TruncatedAndForeignFilesAreRefused) {
  TestFolder folder;
  write_trace(folder / "t.h5", sample());
  const auto size = std::filesystem::file_size(folder / "t.h5");
  for (const double share : {0.99, 0.5, 0.1, 0.001}) {
    write_trace(folder / "t.h5", sample());
    std::filesystem::resize_file(folder / "t.h5",
                                 static_cast<std::uintmax_t>(static_cast<double>(size) * share));
    EXPECT_NE(error_of([&] { read_trace(folder / "t.h5"); }), "no error") << share;
  }
  EXPECT_NE(
      error_of([&] { read_trace(folder.write("x.h5", "no such thing")); }).find("not an HDF5 file"),
      std::string::npos);
  EXPECT_NE(error_of([&] { read_trace(folder / "absent.h5"); }).find("no such file"),
            std::string::npos);
}

}  // namespace
}  // namespace hydraulis
