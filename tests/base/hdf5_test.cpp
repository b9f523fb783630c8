#include "base/hdf5.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "tests/base/temporary_folder.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace hydraulis {
namespace {

using Numbers = std::vector<std::uint32_t>;

Numbers many_numbers() {
  Numbers values(200000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::uint32_t>(i * 2654435761u);
  }
  return values;
}

std::filesystem::path write_example(const TemporaryFolder& folder) {
  const auto path = folder / "example.h5";
  Hdf5File file = Hdf5File::create(path, "example.h5");
  file.set_attribute("/", "source", "a corpus, naïve");
  file.set_attribute("/", "count", std::int64_t{-7});
  file.set_attribute("/", "mean", 0.1);
  file.create_group("/group");
  file.write<std::uint32_t>("/lengths", many_numbers());
  file.write<double>("/group/times", std::vector<double>{1.5, -2.5});
  file.write_texts("/group/names", {"one", "", "drei ⟨3⟩"});
  file.close();
  return path;
}

/// Reads everything of the example, as a program would.
void read_example(const std::filesystem::path& path) {
  const Hdf5File file = Hdf5File::open(path);
  file.text_attribute("/", "source");
  file.integer_attribute("/", "count");
  file.number_attribute("/", "mean");
  file.members("/group");
  file.read<std::uint32_t>("/lengths");
  file.read<double>("/group/times");
  file.read_texts("/group/names");
}

template <typename Action>
void expect_refused(Action&& action, const std::string& part) {
  const std::string message = message_of<InputError>(action);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Hdf5File, GivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  const Hdf5File file = Hdf5File::open(write_example(folder));
  EXPECT_EQ(file.text_attribute("/", "source"), "a corpus, naïve");
  EXPECT_EQ(file.integer_attribute("/", "count"), -7);
  EXPECT_EQ(file.number_attribute("/", "mean"), 0.1);
  EXPECT_TRUE(file.has_attribute("/", "mean"));
  EXPECT_FALSE(file.has_attribute("/", "median"));
  EXPECT_EQ(file.size("/lengths"), 200000u);
  EXPECT_EQ(file.read<std::uint32_t>("/lengths"), many_numbers());
  EXPECT_EQ(file.read<std::uint64_t>("/lengths", 1, 1), std::vector<std::uint64_t>{2654435761u});
  EXPECT_EQ(file.read<double>("/group/times"), (std::vector<double>{1.5, -2.5}));
  EXPECT_EQ(file.read_texts("/group/names"), (std::vector<std::string>{"one", "", "drei ⟨3⟩"}));
  EXPECT_EQ(file.members("/group"), (std::vector<std::string>{"names", "times"}));
  EXPECT_EQ(file.members("/none"), std::vector<std::string>{});
}

TEST(Hdf5File, AppendsInPieces) {
  const TemporaryFolder folder;
  const auto path = folder / "a.h5";
  {
    Hdf5File file = Hdf5File::create(path, "a.h5");
    file.create_dataset<std::uint32_t>("/x");
    file.append<std::uint32_t>("/x", Numbers{});
    file.append<std::uint32_t>("/x", Numbers{1, 2});
    file.append<std::uint32_t>("/x", Numbers{3});
    file.close();
  }
  EXPECT_EQ(Hdf5File::open(path).read<std::uint32_t>("/x"), (Numbers{1, 2, 3}));
}

TEST(Hdf5File, RepeatedDataIsStoredSmall) {
  const TemporaryFolder folder;
  const auto path = folder / "a.h5";
  Hdf5File file = Hdf5File::create(path, "a.h5");
  file.write<std::uint32_t>("/x", Numbers(2000000, 4096));
  file.close();
  EXPECT_LT(std::filesystem::file_size(path), 100000u);
  EXPECT_EQ(Hdf5File::open(path).read<std::uint32_t>("/x").size(), 2000000u);
}

TEST(Hdf5File, SaysWhatIsMissingOrOfTheWrongKind) {
  const TemporaryFolder folder;
  const auto path = write_example(folder);
  const Hdf5File file = Hdf5File::open(path);
  expect_refused([&] { file.read<double>("/none"); }, "example.h5: dataset /none is missing");
  expect_refused([&] { file.read<double>("/none/deeper"); }, "dataset /none/deeper is missing");
  expect_refused([&] { file.read<double>("/group"); }, "/group is not a dataset");
  expect_refused([&] { file.read<std::uint32_t>("/group/times"); }, "wrong element type");
  expect_refused([&] { file.read<std::uint32_t>("/group/names"); }, "wrong element type");
  expect_refused([&] { file.read_texts("/lengths"); }, "does not hold texts");
  expect_refused([&] { file.text_attribute("/", "none"); }, "attribute 'none' of / is missing");
  expect_refused([&] { file.text_attribute("/", "count"); }, "is not text");
  expect_refused([&] { file.integer_attribute("/", "mean"); }, "is not an integer");
  expect_refused([&] { file.number_attribute("/", "source"); }, "is not a number");
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  expect_refused([&] { file.read<std::uint32_t>("/lengths", 1, 200000); }, "asked for 200000");
  expect_refused([&] { file.read<std::uint32_t>("/lengths", 2, kMost); }, "asked for");
}

TEST(Hdf5File, RefusesFilesThatAreNotHdf5) {
  const TemporaryFolder folder;
  expect_refused([&] { Hdf5File::open(folder / "none.h5"); }, "no such file");
  expect_refused([&] { Hdf5File::open(folder.path()); }, "is a folder");
  const auto empty = folder.write("empty.h5", "");
  expect_refused([&] { Hdf5File::open(empty); }, "not an HDF5 file");
  const auto text = folder.write("text.h5", "lengths\n1\n2\n");
  expect_refused([&] { Hdf5File::open(text); }, "text.h5: not an HDF5 file");
  const auto magic = folder.write("magic.h5", std::string("\x89HDF\r\n\x1a\n", 8));
  EXPECT_THROW(Hdf5File::open(magic), InputError);
}

TEST(Hdf5File, RefusesAFileCutAnywhere) {
  const TemporaryFolder folder;
  const std::string whole = read_text_file(write_example(folder));
  for (const double share : {0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.9999}) {
    const auto kept = static_cast<std::size_t>(share * static_cast<double>(whole.size()));
    const auto cut = folder.write("cut.h5", std::string_view(whole).substr(0, kept));
    EXPECT_THROW(read_example(cut), InputError) << "cut to " << kept;
  }
}

TEST(Hdf5File, DamagedBytesAreRefusedOrHarmless) {
#ifdef __SANITIZE_ADDRESS__
  // HDF5 1.10 loses its half-read object header when opening a damaged dataset fails; it returns no
  // handle that we could close. Only leaks are exempt, and only here.
  const __lsan::ScopedDisabler library_leaks;
#endif
  const TemporaryFolder folder;
  const std::string whole = read_text_file(write_example(folder));
  std::size_t refused = 0;
  for (std::size_t at = 0; at < whole.size(); at += at < 4096 ? 7 : 4099) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(~damaged[at]);
    const auto path = folder.write("damaged.h5", damaged);
    try {
      read_example(path);
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0u);
}

TEST(Hdf5File, AClaimedSizeIsNotAllocated) {
  const TemporaryFolder folder;
  const auto path = folder / "claims.h5";
  {
    const hsize_t huge = hsize_t{1} << 40;
    const hsize_t chunk = 65536;
    const Hdf5Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
                          H5Fclose);
    const Hdf5Handle space(H5Screate_simple(1, &huge, nullptr), H5Sclose);
    const Hdf5Handle options(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_chunk(options.get(), 1, &chunk);
    const Hdf5Handle data(H5Dcreate2(file.get(), "x", H5T_STD_U32LE, space.get(), H5P_DEFAULT,
                                     options.get(), H5P_DEFAULT),
                          H5Dclose);
    ASSERT_TRUE(data.valid());
    const hsize_t sides[2] = {2, 2};
    const Hdf5Handle plane(H5Screate_simple(2, sides, nullptr), H5Sclose);
    const Hdf5Handle square(H5Dcreate2(file.get(), "square", H5T_STD_U32LE, plane.get(),
                                       H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                            H5Dclose);
    ASSERT_TRUE(square.valid());
  }
  const Hdf5File file = Hdf5File::open(path);
  expect_refused([&] { file.read<std::uint32_t>("/x"); }, "claims 1099511627776 elements");
  expect_refused([&] { file.read<std::uint32_t>("/square"); }, "not one-dimensional");
  expect_refused([&] { file.read_texts("/x"); }, "does not hold texts");
}

TEST(Hdf5File, CannotBeCreatedInAMissingFolder) {
  const TemporaryFolder folder;
  expect_refused([&] { Hdf5File::create(folder / "none" / "a.h5", "shown"); },
                 "shown: cannot create");
}

}  // namespace
}  // namespace hydraulis
