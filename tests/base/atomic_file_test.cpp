#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

namespace fs = std::filesystem;

std::size_t files_in(const TemporaryFolder& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path())) ++count;
  return count;
}

TEST(AtomicFile, WritesAndReplacesWholeFiles) {
  const TemporaryFolder folder;
  write_text_file(folder / "a.txt", "first");
  write_text_file(folder / "a.txt", "second");
  EXPECT_EQ(read_text_file(folder / "a.txt"), "second");
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(AtomicFile, WithoutCommitTheTargetIsUntouched) {
  const TemporaryFolder folder;
  folder.write("a.txt", "old");
  {
    AtomicFile file(folder / "a.txt");
    std::ofstream(file.temporary()) << "half of it";
    EXPECT_NE(file.temporary(), folder / "a.txt");
    EXPECT_EQ(file.temporary().parent_path(), folder.path());
  }
  EXPECT_EQ(read_text_file(folder / "a.txt"), "old");
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(AtomicFile, FollowsTheUmask) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(027);
  write_text_file(folder / "a.txt", "x");
  ::umask(before);
  EXPECT_EQ(fs::status(folder / "a.txt").permissions(), fs::perms(0640));
}

TEST(AtomicFile, RefusesWhatCannotBeWritten) {
  const TemporaryFolder folder;
  const auto message = [](const fs::path& target) {
    return message_of<InputError>([&] { write_text_file(target, "x"); });
  };
  EXPECT_EQ(message(""), "output file: the name is empty");
  EXPECT_NE(message(folder.path()).find("is a folder"), std::string::npos);
  EXPECT_NE(message(folder / "missing" / "a.txt").find("does not exist"), std::string::npos);
  folder.write("file", "x");
  EXPECT_NE(message(folder / "file" / "a.txt").find("does not exist"), std::string::npos);
  const std::string long_name(300, 'n');
  EXPECT_NE(message(folder / long_name).find("cannot write"), std::string::npos);
  EXPECT_EQ(files_in(folder), 1u);
}

// Renaming over a device would replace it by a plain file, for root even /dev/null.
TEST(AtomicFile, RefusesTargetsThatAreNotPlainFiles) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(message_of<InputError>([&] {
              write_text_file(folder / "pipe", "x");
            }).find("not a plain file"),
            std::string::npos);
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  EXPECT_THROW(write_text_file("/dev/null", "x"), InputError);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(AtomicFile, WritesThroughALink) {
  const TemporaryFolder folder;
  folder.write("real.txt", "old");
  fs::create_symlink(folder / "real.txt", folder / "link.txt");
  write_text_file(folder / "link.txt", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link.txt"));
  EXPECT_EQ(read_text_file(folder / "real.txt"), "new");
}

TEST(ReadTextFile, NamesTheFileAndTheReason) {
  const TemporaryFolder folder;
  const auto message = [](const fs::path& path, std::size_t most = 64) {
    return message_of<InputError>([&] { read_text_file(path, most); });
  };
  EXPECT_NE(message(folder / "none").find("none: cannot open: No such file"), std::string::npos);
  EXPECT_NE(message(folder.path()).find("is a folder"), std::string::npos);
  folder.write("big", std::string(65, 'x'));
  EXPECT_NE(message(folder / "big").find("larger than 64 bytes"), std::string::npos);
  EXPECT_EQ(read_text_file(folder / "big", 65).size(), 65u);
  EXPECT_NE(message("/dev/zero").find("larger than"), std::string::npos);
}

TEST(ReadTextFile, KeepsEveryByte) {
  const TemporaryFolder folder;
  const std::string bytes("a\0b\r\n\xff", 6);
  folder.write("bytes", bytes);
  EXPECT_EQ(read_text_file(folder / "bytes"), bytes);
  folder.write("empty", "");
  EXPECT_EQ(read_text_file(folder / "empty"), "");
}

}  // namespace
}  // namespace hydraulis
